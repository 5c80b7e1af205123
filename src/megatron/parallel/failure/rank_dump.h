// What a rank was doing: its last calls, its wait and the stacks of its threads. Ranks write such
// files on SIGUSR2 and when the run fails; `megatron hang-report` reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/thread_stacks.h"
#include "megatron/parallel/failure/call_history.h"
#include "megatron/parallel/failure/wait_table.h"

namespace megatron {

struct RankDump {
  std::int64_t rank = 0, world_size = 1;
  std::string host;
  std::int64_t process = 0;       ///< process id
  std::string start;              ///< identity of this start of the run, equal on all ranks
  double time_s = 0;              ///< Unix time of the dump
  std::string state;              ///< "running", "waiting", "stopped", "dead" or "ended"
  bool is_on_device = false;      ///< its calls run on a GPU, so the host does not wait in them
  std::string reason;             ///< why it was written: "SIGUSR2" or the failure of the run
  RankWait wait;                  ///< with the iteration
  std::vector<CallRecord> calls;  ///< oldest first
  CallGroups groups;              ///< the groups that the writer knows; see read_dumps()
  /// The main thread's first, unless that was ending; none if another rank wrote the dump.
  std::vector<ThreadStack> threads;
};

/// Returns the file of a rank in a folder of dumps.
std::filesystem::path dump_path(const std::filesystem::path& folder, std::int64_t rank);

void write_dump(const std::filesystem::path& path, const RankDump& dump);

/// Throws a UserError that names the file and the field if it is no dump.
RankDump read_dump(const std::filesystem::path& path);

/// The dumps of a folder that belong to the start of the run that wrote last, by rank.
struct FolderDumps {
  std::vector<RankDump> dumps;
  std::int64_t num_older = 0;            ///< left out: of earlier starts
  std::vector<std::string> problems;     ///< left out: what is wrong with each other file, by name
  std::vector<std::int64_t> unreadable;  ///< the ranks of those files, as far as their names say
};
/// Keeps each group only in the first dump that has it. Throws a UserError if the folder has no
/// dump that can be read.
FolderDumps read_dumps(const std::filesystem::path& folder);

}  // namespace megatron
