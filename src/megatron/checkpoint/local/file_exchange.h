// Copies files between the folders of two ranks, streamed in chunks over their communicator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/local/replication_groups.h"
#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"

namespace megatron {

/// Files that this rank sends to `to`.
struct FilesToSend {
  std::int64_t to = 0;
  std::filesystem::path folder = {};
  std::vector<std::string> names = {};
};

/// The folder that this rank writes the files of `from` to.
struct FilesToReceive {
  std::int64_t from = 0;
  std::filesystem::path folder = {};
  /// Whether readers may look into the folder: then a file gets its name when it is complete.
  bool has_readers = false;
  FileSystem& files = default_file_system();
};

/// Sends and receives at the same time, both or one of them. Both ranks make matching calls. After
/// all bytes have moved, throws the first UserError of a file that could not be read here or on
/// the other rank, or not be written here.
void exchange_files(Comm& comm, const std::optional<FilesToSend>& sent,
                    const std::optional<FilesToReceive>& received);

/// This rank's files in a folder that is not read yet.
struct OwnFiles {
  std::vector<std::string> names = {};
  std::filesystem::path folder = {};
};

/// Copies this rank's files to the folders of ranks_with_copies(), and takes the files of those
/// ranks whose copies come here. Throws UserError like exchange_files(), after all have moved.
/// Collective over the world.
void replicate_files(const OwnFiles& own, const LocalPlacement& placement, const Axis& world,
                     FileSystem& files);

}  // namespace megatron
