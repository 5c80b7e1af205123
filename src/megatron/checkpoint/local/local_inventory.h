// What the folders of local checkpoints hold, which checkpoint is complete over all of them, and
// which ranks share a folder.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// What one folder holds of a checkpoint: the manifest, and some of its shard files.
struct HeldCheckpoint {
  std::int64_t iteration = 0;
  std::uint64_t identity = 0;           ///< checksum of the manifest
  std::size_t num_files = 0;            ///< shard files of the whole checkpoint
  std::vector<std::string> files = {};  ///< those in this folder, ascending
  bool operator==(const HeldCheckpoint&) const = default;
};

/// Returns the committed checkpoints of `root` for which `is_own` holds. Those with an unreadable
/// manifest or auxiliary file are left out.
std::vector<HeldCheckpoint> read_held_checkpoints(
    const std::filesystem::path& root, const std::function<bool(const Manifest&)>& is_own);

/// Converts to and from the text that ranks exchange.
std::string held_text(const std::vector<HeldCheckpoint>& held);
std::vector<HeldCheckpoint> parse_held(const std::string& text);

/// A checkpoint in several folders. Each is known by its lowest rank, the leader.
struct SpreadCheckpoint {
  std::int64_t iteration = 0;
  std::uint64_t identity = 0;
  std::size_t num_files = 0;
  std::vector<std::int64_t> leaders = {};  ///< of the folders with its manifest, ascending
  std::map<std::string, std::vector<std::int64_t>> holders = {};  ///< file → leaders, ascending

  bool is_complete() const { return holders.size() == num_files; }
  std::size_t num_copies() const;  ///< of all files together
};

/// Returns the checkpoints that the folders hold, the newest first; of one iteration first the one
/// with the most copies. Element r of `held` is what rank r found; empty unless it is a leader.
std::vector<SpreadCheckpoint> spread_checkpoints(std::span<const std::vector<HeldCheckpoint>> held);

/// Reads those `names` of a checkpoint folder and returns the files whose bytes are not those that
/// were written, each with the reason.
std::map<std::string, std::string> find_damaged_files(const std::filesystem::path& folder,
                                                      const std::vector<std::string>& names);

/// Returns which ranks see the same folder `root`, which is created if needed. It looks, because
/// hosts have disks of their own under one name. Collective over the world.
FolderOwners find_folder_owners(const std::filesystem::path& root, const Axis& world,
                                c10::Device device);

}  // namespace megatron
