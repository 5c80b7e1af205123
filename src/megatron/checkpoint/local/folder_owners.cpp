#include "megatron/checkpoint/local/folder_owners.h"

#include <chrono>

#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/stale_temporaries.h"

namespace megatron {
namespace {

/// Returns a number that no earlier run used in its marks.
std::string new_token() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

/// Returns the name of a rank's mark. It is a temporary name, so that a later save removes what a
/// killed run leaves.
std::string mark_name(const std::string& token, std::int64_t rank) {
  return std::string(kWriteProbe) + ".tmp." + token +
         format("%010lld", static_cast<long long>(rank));
}

}  // namespace

FolderOwners find_folder_owners(const std::filesystem::path& root, const Axis& world,
                                c10::Device device) {
  const CollectiveSteps together(world, device);
  const std::string token = together.run_on_rank_0(new_token);
  const fs::path own = root / mark_name(token, world.rank);
  together.run_on_all_ranks([&] {
    megatron::create_directories(root);
    write_file(own, "");
    return std::string();
  });
  const std::vector<std::string> leaders = together.run_on_all_ranks([&] {
    std::int64_t first = 0;
    while (first < world.rank && !fs::exists(root / mark_name(token, first))) ++first;
    return std::to_string(first);
  });
  together.run_on_all_ranks([&] {
    remove_tree(own);
    return std::string();
  });
  FolderOwners owners;
  for (const std::string& leader : leaders) owners.leaders.push_back(std::stoll(leader));
  return owners;
}

}  // namespace megatron
