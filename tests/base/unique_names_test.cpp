// Reads every class, struct and enum under src: no two files define a type of the same name, which
// the linker would not notice (C++'s one-definition rule, [basic.def.odr]) and whose functions it
// would mix up.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

/// Maps the qualified names of types to the files that define them.
using Definitions = std::map<std::string, std::set<std::string>>;

/// Adds the types at the outer level of a file. The sources open and close a namespace in a line of
/// its own, and say at its end that it is one. An unnamed one belongs to its file.
void add_types_of(const fs::path& path, const std::string& file, Definitions& definitions) {
  static const std::regex begin(R"(^(?:inline )?namespace ([\w:]*) ?\{$)"),
      end(R"(^\}\s+// namespace.*)"),
      type(R"(^(?:struct|class|enum class|enum)\s+(?:alignas\([^)]*\)\s+)?(\w+)(?: final)?)"
           R"((?=$| [:{]).*)");
  std::vector<std::string> spaces;
  std::ifstream lines(path);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, begin)) {
      spaces.push_back(match[1].str().empty() ? "of " + file : match[1].str());
    } else if (std::regex_match(line, end)) {
      if (!spaces.empty()) spaces.pop_back();
    } else if ((!line.ends_with(';') || line.find('{') != std::string::npos) &&
               std::regex_match(line, match, type)) {
      std::string name;
      for (const std::string& space : spaces) name += space + "::";
      definitions[name + match[1].str()].insert(file);
    }
  }
}

Definitions types_under(const fs::path& folder) {
  Definitions definitions;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    if (extension == ".h" || extension == ".cpp" || extension == ".cu")
      add_types_of(entry.path(), fs::relative(entry.path(), folder), definitions);
  }
  return definitions;
}

TEST(UniqueNames, NoTwoFilesDefineTheSameType) {
  const Definitions definitions = types_under(fs::path(MEGATRON_SOURCE_DIR) / "src");
  EXPECT_GT(definitions.size(), 1000U);
  EXPECT_TRUE(definitions.contains("megatron::Axis"));
  for (const auto& [name, files] : definitions) {
    EXPECT_EQ(files.size(), 1U) << name << " is defined in " << *files.begin() << " and in "
                                << *files.rbegin() << ": rename one of them";
  }
}

}  // namespace
