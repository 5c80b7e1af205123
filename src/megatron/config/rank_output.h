// Which output of the ranks a launcher shows, and which it writes to files: torchrun's flags
// --redirects, --tee and --local-ranks-filter.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megatron {

/// The values are torchrun's, whose sums name both streams.
enum class OutputStream { out = 1, err = 2 };

/// Streams of the ranks of a host.
class StreamSet {
 public:
  StreamSet() = default;
  /// Reads "0" (none), "1" (stdout), "2" (stderr) or "3" (both) for every rank, or a list such as
  /// "0:3,1:2" for single ones of the host's ranks. Throws a UserError that names `flag`.
  StreamSet(const std::string& text, const std::string& flag, std::int64_t num_ranks);
  bool contains(std::int64_t local_rank, OutputStream stream) const;
  bool is_empty() const;

 private:
  int of_others_ = 0;
  std::map<std::int64_t, int> of_rank_;
};

struct RankOutput {
  StreamSet redirects = {};  ///< written to files in place of the launcher's output
  StreamSet tee = {};        ///< written to both
  std::vector<std::int64_t> shown_ranks = {};  ///< local ranks in the launcher's output; empty: all

  /// Returns whether a stream is written to the rank's file. Where neither flag is given, all are.
  bool logs(std::int64_t local_rank, OutputStream stream) const;
  /// Returns whether a stream is forwarded to the launcher's output.
  bool shows(std::int64_t local_rank, OutputStream stream) const;
};

}  // namespace megatron
