// Counts the settings that sources outside the tables name as string literals. The compiler checks
// no string, so code names a member instead (config/setting.h).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

/// Names without an underscore, such as load and seed, are also other words.
std::set<std::string> names_of_settings() {
  std::set<std::string> names;
  for (const Field& field : settings_table().set().fields)
    if (field.name.find('_') != std::string::npos) names.insert(field.name);
  return names;
}

bool declares_settings(const fs::path& path) {
  const std::string file = path.filename();
  return file.ends_with("_table.cpp") || file == "legacy_flags.cpp" ||
         file == "known_flags_data.cpp";
}

/// Whether a source has the names of another program's settings, of which some are ours too.
bool names_foreign_settings(const fs::path& path) {
  if (path.parent_path().filename() == "families") return true;  // keys of config.json
  return std::set<fs::path>{"deepspeed_config.cpp", "gguf_model.cpp", "nemo.cpp", "saved_args.cpp"}
      .contains(path.filename());
}

/// Counts the literals "some_name" of a source that are names of settings.
std::int64_t count_names(const fs::path& path, const std::set<std::string>& names) {
  static const std::regex literal(R"re("([a-z0-9_]+)")re");
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::int64_t count = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), literal), end; match != end; ++match)
    count += names.contains((*match)[1].str());
  return count;
}

TEST(SettingNames, FewAreStringsOutsideTheTables) {
  constexpr std::int64_t kMost = 150;
  const std::set<std::string> names = names_of_settings();
  ASSERT_GT(names.size(), 250U);
  std::map<std::string, std::int64_t> counts;
  std::int64_t total = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(MEGATRON_SOURCE_DIR) / "src")) {
    const std::string extension = entry.path().extension();
    if ((extension != ".h" && extension != ".cpp") || declares_settings(entry.path()) ||
        names_foreign_settings(entry.path()))
      continue;
    const std::int64_t count = count_names(entry.path(), names);
    if (count > 0) counts[entry.path()] = count;
    total += count;
  }
  std::string places;
  for (const auto& [file, count] : counts) places += std::to_string(count) + " " + file + "\n";
  EXPECT_LE(total, kMost) << "name settings by their members, see config/setting.h:\n" << places;
}

}  // namespace
}  // namespace megatron
