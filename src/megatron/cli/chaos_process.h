// The processes of a run's ranks, and faults that are done to the inside of one: to its connections
// and to its memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace megatron {

/// Knows which child of a launcher is which rank. The launcher starts ranks in order, but keeps the
/// processes of some when it starts the others again (--inprocess-restart): the children are in
/// order of creation, which is then not that of the ranks.
class RankProcesses {
 public:
  explicit RankProcesses(std::size_t num_ranks) : by_rank_(num_ranks, 0) {}

  /// `children` are in order of creation. Call it at least once between two starts of ranks.
  void update(const std::vector<pid_t>& children);
  /// Returns the process ids in order of rank; nothing while ranks are being started.
  std::vector<pid_t> by_rank() const { return is_complete_ ? by_rank_ : std::vector<pid_t>(); }

 private:
  std::vector<pid_t> by_rank_;  ///< 0: not known yet
  bool is_complete_ = false;
};

/// Shuts down a TCP connection between process `victim` and another of `processes`, as if the link
/// were cut. `choice` selects one. Returns false if there is none. Throws a UserError if the system
/// does not allow it.
bool drop_link(pid_t victim, const std::vector<pid_t>& processes, std::uint64_t choice);

/// Like drop_link(), but sends bytes over the connection that `victim` did not send.
bool corrupt_link(pid_t victim, const std::vector<pid_t>& processes, std::uint64_t choice);

/// Flips one of the bits 16 to 27 of a float32 weight that the process has published (the upper
/// part of the mantissa, and the lower part of the exponent). Returns false if it has published
/// none. Throws a UserError if the system does not allow it.
bool flip_bit(pid_t victim, const std::filesystem::path& published, std::uint64_t choice);

}  // namespace megatron
