// Reads every #include under src/megatron: a room includes only the rooms that it USES in
// CMakeLists.txt, a folder only those before it in its room's README, torch stays in the rooms that
// link it, and third-party headers stay in .cpp files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kSource = MEGATRON_SOURCE_DIR;
/// Third-party headers that our headers may include: forward declarations and the tensor type.
const std::set<std::string> kAllowedInHeaders{"nlohmann/json_fwd.hpp"};

struct Room {
  std::set<std::string> uses;  ///< and itself
  bool links_torch = false;
};

/// Returns the words of a list.
std::vector<std::string> words_of(const std::string& list, char separator = ' ') {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, separator);) words.push_back(word);
  return words;
}

/// Returns the rooms with what CMakeLists.txt says of each.
std::map<std::string, Room> rooms() {
  std::map<std::string, Room> result;
  for (const std::string& entry : words_of(MEGATRON_ROOM_USES)) {  // name:room,room
    const std::size_t colon = entry.find(':');
    const std::string name = entry.substr(0, colon);
    for (const std::string& used : words_of(entry.substr(colon + 1), ','))
      result[name].uses.insert(used);
    result[name].uses.insert(name);
  }
  for (const std::string& name : words_of(MEGATRON_TORCH_ROOMS)) result.at(name).links_torch = true;
  return result;
}

bool is_torch(const std::string& header) {
  static const std::regex pattern(R"(^(ATen|c10|torch|caffe2)/)");
  return std::regex_search(header, pattern);
}

bool is_third_party(const std::string& header) {
  static const std::regex system(R"(^(sys|netinet|arpa|net|linux|asm|bits)/)");
  if (header.starts_with("megatron/") || header.starts_with("kernels/") || is_torch(header))
    return false;
  if (std::regex_search(header, system)) return false;
  return header.find('/') != std::string::npos || header.find("zlib") == 0 ||
         header.find("zstd") == 0 || header.find("pcre2") == 0 || header.find("simdjson") == 0 ||
         header.find("utf8proc") == 0 || header.find("xxhash") == 0 ||
         header.find("microhttpd") == 0;
}

struct Include {
  fs::path file;
  std::string header;
};

std::vector<Include> includes_under(const fs::path& folder) {
  std::vector<Include> found;
  const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh")
      continue;
    std::ifstream lines(entry.path());
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (std::regex_search(line, match, pattern))
        found.push_back({fs::relative(entry.path(), folder), match.str(1)});
    }
  }
  return found;
}

TEST(Includes, AreOfTheRoomsThatARoomUses) {
  const auto known = rooms();
  ASSERT_GE(known.size(), 5u);
  std::map<std::string, std::set<std::string>> included_rooms;
  for (const auto& [file, header] : includes_under(kSource / "src/megatron")) {
    const std::string room = file.begin()->string();
    if (room == "cli") continue;
    ASSERT_TRUE(known.contains(room))
        << file << " lies in a folder that CMakeLists.txt does not name as a room";
    const bool is_ours = header.starts_with("megatron/");
    if (is_ours || header.starts_with("kernels/")) {
      const fs::path path = header;
      const std::string included = std::next(path.begin(), is_ours ? 1 : 0)->string();
      EXPECT_TRUE(known.at(room).uses.contains(included))
          << file << " includes " << header << ", but CMakeLists.txt does not say that " << room
          << " USES " << included;
      included_rooms[room].insert(included);
    }
    EXPECT_TRUE(!is_torch(header) || known.at(room).links_torch)
        << file << " includes " << header << ", but its room is free of torch";
  }
  for (const auto& [name, room] : known) {
    for (const std::string& used : room.uses)
      EXPECT_TRUE(used == name || included_rooms[name].contains(used))
          << "CMakeLists.txt says that " << name << " USES " << used
          << ", but it includes none of it";
  }
}

// The list of rooms goes from the bottom up, so that no two use each other.
TEST(Includes, GoUpTheListOfRooms) {
  const auto known = rooms();
  std::set<std::string> below{"kernels"};
  for (const std::string& name : words_of(MEGATRON_ROOMS)) {
    below.insert(name);
    for (const std::string& used : known.at(name).uses)
      EXPECT_TRUE(below.contains(used)) << name << " USES " << used << ", which stands below it";
  }
}

/// Returns the folders of a room in the order of the numbered list in its README, such as
/// "1. `run/`: ..."; empty: it has no such list.
std::vector<std::string> floors_of(const std::string& room) {
  const std::regex pattern(R"(^[0-9]+\. `([a-z_]+)/`)");
  std::vector<std::string> floors;
  std::ifstream lines(kSource / "src/megatron" / room / "README.md");
  std::smatch match;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, match, pattern)) floors.push_back(match.str(1));
  return floors;
}

// In a room with floors, every folder has one and includes only folders before it.
TEST(Includes, GoDownTheFloorsOfARoom) {
  for (const std::string& room : words_of(MEGATRON_ROOMS)) {
    const std::vector<std::string> floors = floors_of(room);
    EXPECT_TRUE(!floors.empty() || room != "training") << "its README lists no floors";
    if (floors.empty()) continue;
    const auto floor_of = [&](const fs::path& below_room) {
      return std::ranges::find(floors, below_room.begin()->string()) - floors.begin();
    };
    const fs::path folder = kSource / "src/megatron" / room;
    for (const std::string& name : floors)
      EXPECT_TRUE(fs::is_directory(folder / name)) << room << "/README.md lists " << name;
    const std::string prefix = "megatron/" + room + "/";
    for (const auto& [file, header] : includes_under(folder)) {
      EXPECT_LT(floor_of(file), std::ssize(floors))
          << room << "/README.md lists no folder of " << file;
      if (!header.starts_with(prefix)) continue;
      EXPECT_LE(floor_of(header.substr(prefix.size())), floor_of(file))
          << file << " includes " << header << ", whose folder does not come before its own in "
          << room << "/README.md";
    }
  }
}

TEST(Includes, FrontCommandsAreFreeOfTorch) {
  const auto known = rooms();
  for (const auto& [file, header] : includes_under(kSource / "src/megatron/cli")) {
    if (file.begin()->string() == "engine") continue;
    EXPECT_FALSE(is_torch(header)) << "cli/" << file << " includes " << header;
    if (!header.starts_with("megatron/")) continue;
    const std::string included = std::next(fs::path(header).begin())->string();
    EXPECT_FALSE(included != "cli" && known.at(included).links_torch)
        << "cli/" << file << " includes " << header << ", a room with torch";
    EXPECT_FALSE(header.starts_with("megatron/cli/engine/"))
        << "cli/" << file << " includes " << header;
  }
}

TEST(Includes, ThirdPartyHeadersStayInSourceFiles) {
  for (const auto& [file, header] : includes_under(kSource / "src/megatron")) {
    if (file.extension() != ".h" || kAllowedInHeaders.contains(header)) continue;
    EXPECT_FALSE(is_third_party(header))
        << file << " includes " << header << ": put it behind a header of ours";
    EXPECT_NE(header, "torch/torch.h") << file;
  }
}

TEST(Includes, KernelsKnowNeitherTorchNorRooms) {
  if (!fs::exists(kSource / "src/kernels")) GTEST_SKIP();
  for (const auto& [file, header] : includes_under(kSource / "src/kernels")) {
    EXPECT_FALSE(is_torch(header) || header.starts_with("megatron/"))
        << "kernels/" << file << " includes " << header;
  }
}

}  // namespace
