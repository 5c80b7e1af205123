#include "megatron/checkpoint/local/local_inventory.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/stale_temporaries.h"

namespace megatron {
namespace {

constexpr const char* kSource = "list of local checkpoints";

bool has_auxiliary_files(const fs::path& folder, const Manifest& manifest) {
  return std::ranges::all_of(manifest.files, [&](const auto& file) {
    return fs::exists(folder / file.first) &&
           checksum(read_file(folder / file.first)) == file.second;
  });
}

/// Returns the names of the files of a checkpoint folder that the manifest lists.
std::vector<std::string> held_files(const fs::path& folder, const Manifest& manifest) {
  std::vector<std::string> names;
  for (const auto& [name, header] : manifest.headers) {
    if (fs::exists(folder / name)) names.push_back(name);
  }
  return names;
}

std::optional<HeldCheckpoint> read_held(const fs::path& folder,
                                        const std::function<bool(const Manifest&)>& is_own) try {
  const Manifest manifest = read_manifest(folder);
  if (!is_own(manifest) || !has_auxiliary_files(folder, manifest)) return std::nullopt;
  return HeldCheckpoint{.iteration = manifest.progress.iteration,
                        .identity = checksum(read_file(folder / kManifestFile)),
                        .num_files = manifest.headers.size(),
                        .files = held_files(folder, manifest)};
} catch (const UserError&) {  // as good as lost: another folder may hold it
  return std::nullopt;
}

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

std::vector<HeldCheckpoint> read_held_checkpoints(
    const fs::path& root, const std::function<bool(const Manifest&)>& is_own) {
  std::vector<HeldCheckpoint> all;
  if (!fs::is_directory(root)) return all;
  for (const std::int64_t iteration : committed_iterations(root)) {
    if (auto held = read_held(root / iteration_folder(iteration), is_own))
      all.push_back(std::move(*held));
  }
  return all;
}

std::string held_text(const std::vector<HeldCheckpoint>& held) {
  Json list = Json::array();
  for (const HeldCheckpoint& one : held)
    list.push_back({{"iteration", one.iteration},
                    {"identity", checksum_hex(one.identity)},
                    {"num_files", one.num_files},
                    {"files", one.files}});
  return list.dump();
}

std::vector<HeldCheckpoint> parse_held(const std::string& text) {
  std::vector<HeldCheckpoint> held;
  for (const JsonCursor& one : JsonCursor(parse_json(text, kSource), kSource).elements())
    held.push_back({.iteration = one["iteration"].integer(),
                    .identity = std::stoull(one["identity"].text(), nullptr, 16),
                    .num_files = static_cast<std::size_t>(one["num_files"].integer()),
                    .files = one["files"]->get<std::vector<std::string>>()});
  return held;
}

std::size_t SpreadCheckpoint::num_copies() const {
  std::size_t copies = 0;
  for (const auto& [file, folders] : holders) copies += folders.size();
  return copies;
}

std::vector<SpreadCheckpoint> spread_checkpoints(
    std::span<const std::vector<HeldCheckpoint>> held) {
  std::map<std::pair<std::int64_t, std::uint64_t>, SpreadCheckpoint> all;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    const auto leader = static_cast<std::int64_t>(rank);
    for (const HeldCheckpoint& one : held[rank]) {
      SpreadCheckpoint& spread = all[{one.iteration, one.identity}];
      spread.iteration = one.iteration;
      spread.identity = one.identity;
      spread.num_files = one.num_files;
      spread.leaders.push_back(leader);
      for (const std::string& file : one.files) spread.holders[file].push_back(leader);
    }
  }
  std::vector<SpreadCheckpoint> newest_first;
  for (auto& [key, spread] : all) newest_first.push_back(std::move(spread));
  std::ranges::sort(newest_first, std::greater(), [](const SpreadCheckpoint& spread) {
    return std::tuple(spread.iteration, spread.num_copies(), spread.identity);
  });
  return newest_first;
}

std::map<std::string, std::string> find_damaged_files(const fs::path& folder,
                                                      const std::vector<std::string>& names) {
  ManifestReader reader(folder);
  std::map<std::string, std::string> reasons;
  const std::set<std::string> wanted(names.begin(), names.end());
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    for (const Piece& piece : tensor.pieces) {
      if (!wanted.contains(piece.file) || reasons.contains(piece.file)) continue;
      try {
        reader.piece_tensor(name, tensor, piece);
      } catch (const UserError& error) {
        reasons[piece.file] = error.parts().problem();
      }
    }
  }
  return reasons;
}

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
