#include "megatron/datasets/leftovers.h"

#include <cctype>
#include <vector>

namespace megatron {

void remove_leftovers(const fs::path& folder,
                      const std::function<bool(const std::string& name)>& is_leftover) {
  std::vector<fs::path> leftovers;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored))
    if (is_leftover(file.path().filename().string())) leftovers.push_back(file.path());
  for (const fs::path& leftover : leftovers) fs::remove(leftover, ignored);
}

void remove_leftovers(const std::string& start) {
  const fs::path path(start);
  const std::string begin = path.filename().string() + ".";
  remove_leftovers(parent_of(path), [&](const std::string& name) {
    return name.size() > begin.size() && name.starts_with(begin) &&
           std::isdigit(static_cast<unsigned char>(name[begin.size()])) != 0;
  });
}

}  // namespace megatron
