// Counts the sources that see a header, directly or through other headers: as many are compiled
// again when it changes. Bounds keep a build after a new setting short.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/files.h"

namespace {

namespace fs = std::filesystem;

/// The includes of our own headers, by file, as paths below src/.
std::map<std::string, std::vector<std::string>> includes_of_files() {
  const fs::path source = fs::path(MEGATRON_SOURCE_DIR) / "src";
  const std::regex pattern("#include \"(megatron/[^\"]+|kernels/[^\"]+)\"");
  std::map<std::string, std::vector<std::string>> includes;
  for (const auto& entry : fs::recursive_directory_iterator(source / "megatron")) {
    const fs::path extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp") continue;
    const std::string text = megatron::read_file(entry.path());
    auto& found = includes[fs::relative(entry.path(), source).string()];
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
      found.push_back(at->str(1));
  }
  return includes;
}

/// Returns how many sources see each header. The tables of Hugging Face families name members of
/// the architecture by their nature, and are not counted: each is a small source.
std::map<std::string, int> sources_that_see() {
  const auto includes = includes_of_files();
  std::map<std::string, int> sources;
  for (const auto& [file, direct] : includes) {
    if (!file.ends_with(".cpp") || file.starts_with("megatron/models/hf/families/")) continue;
    std::set<std::string> seen;
    for (std::vector<std::string> open = direct; !open.empty();) {
      const std::string header = open.back();
      open.pop_back();
      const auto found = includes.find(header);
      if (!seen.insert(header).second || found == includes.end()) continue;
      open.insert(open.end(), found->second.begin(), found->second.end());
    }
    for (const std::string& header : seen) ++sources[header];
  }
  return sources;
}

TEST(IncludeClosure, StaysWithinItsBound) {
  const std::map<std::string, int> bounds{
      {"megatron/base/json.h", 80},          {"megatron/base/json_fwd.h", 175},
      {"megatron/config/settings.h", 115},   {"megatron/parallel/rank.h", 95},
      {"megatron/params/param_store.h", 95}, {"megatron/checkpoint/checkpoint.h", 50},
      {"megatron/params/parameter.h", 160},  {"megatron/config/problems.h", 159},
  };
  const std::map<std::string, int> sources = sources_that_see();
  for (const auto& [header, bound] : bounds) {
    ASSERT_TRUE(sources.contains(header)) << header << " does not exist, or nothing includes it";
    EXPECT_LE(sources.at(header), bound)
        << header << " is seen by " << sources.at(header) << " sources, at most " << bound
        << " are wanted. Declare its types where only references are taken, and include it in the "
           "sources that read their members.";
  }
}

// A new setting is a member of one of these structs.
TEST(IncludeClosure, OfASettingsStructIsSmall) {
  const std::map<std::string, int> sources = sources_that_see();
  int structs = 0;
  for (const auto& [header, count] : sources) {
    if (!header.starts_with("megatron/config/") || !header.ends_with("_config.h")) continue;
    if (header.ends_with("/print_config.h")) continue;  // no struct
    ++structs;
    if (header.ends_with("/transformer_config.h") || header.ends_with("/moe_config.h") ||
        header.ends_with("/recurrent_config.h")) {
      EXPECT_LE(count, 160) << header;  // all that computes reads the architecture
    } else if (header.ends_with("/tokenizer_config.h")) {
      EXPECT_LE(count, 100) << header;  // a part of what --load names
    } else {
      EXPECT_LE(count, 65) << header;
    }
  }
  EXPECT_GE(structs, 12);
}

}  // namespace
