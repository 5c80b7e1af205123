#include "megatron/config/reference_docs.h"

#include <gtest/gtest.h>

#include "megatron/base/files.h"

namespace megatron {
namespace {

TEST(Reference, DocsConfigIsTrue) {
  EXPECT_TRUE(read_file(fs::path(MEGATRON_SOURCE_DIR) / "docs/config.md") == config_markdown())
      << "docs/config.md is old: run `build/bin/megatron help --markdown > docs/config.md`";
}

TEST(Reference, ManualEscapesDashesAndDots) {
  FieldSet fields;
  Field& field = fields.fields.emplace_back();
  field.name = "a_b";
  field.help = ".dots and -dashes\\";
  const CommandManual manual{"do", "does", &fields};
  const std::string page = manual_page({&manual, 1}, "1");
  EXPECT_NE(page.find(".B \\-\\-a\\-b TEXT\n\\&.dots and \\-dashes\\e\n"), std::string::npos)
      << page;
}

}  // namespace
}  // namespace megatron
