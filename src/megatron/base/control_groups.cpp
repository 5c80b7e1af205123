#include "megatron/base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "megatron/base/words.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

/// Reads the first numbers of a file. Returns 0 for each that is missing or "max".
std::vector<double> read_numbers(const fs::path& file, std::size_t count) {
  std::ifstream in(file);
  std::vector<double> numbers(count);
  for (double& number : numbers)
    if (!(in >> number)) number = 0;
  return numbers;
}

/// Calls read(folder, is_v1) for each group of a controller that the process is in, and returns the
/// smallest result above 0; 0: there is none.
template <class Read>
double smallest_limit(const ControlGroups& groups, const std::string& controller,
                      const Read& read) {
  std::ifstream list(groups.list);
  double least = 0;
  for (std::string line; std::getline(list, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v1 = std::ranges::count(split_at(controllers, ','), controller) > 0;
    if (!is_v1 && !controllers.empty()) continue;
    const fs::path root = is_v1 ? groups.root / controller : groups.root;
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      const double limit = read(root / group, is_v1);
      if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace

double cgroup_memory_limit(const ControlGroups& groups) {
  constexpr double kNoLimit = 1e18;  // v1 writes a number near 2^63
  return smallest_limit(groups, "memory", [](const fs::path& folder, bool is_v1) {
    const double bytes =
        read_numbers(folder / (is_v1 ? "memory.limit_in_bytes" : "memory.max"), 1)[0];
    return bytes < kNoLimit ? bytes : 0;
  });
}

double cgroup_cpu_quota(const ControlGroups& groups) {
  return smallest_limit(groups, "cpu", [](const fs::path& folder, bool is_v1) {
    std::vector<double> numbers = read_numbers(folder / "cpu.max", 2);
    if (is_v1)
      numbers = {read_numbers(folder / "cpu.cfs_quota_us", 1)[0],
                 read_numbers(folder / "cpu.cfs_period_us", 1)[0]};
    return numbers[1] > 0 ? numbers[0] / numbers[1] : 0;
  });
}

}  // namespace megatron
