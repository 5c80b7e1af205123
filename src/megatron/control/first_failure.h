// Finds the rank whose failure ended a start. Ranks that end because of it may be seen to end
// first, and so may ranks that saved and stopped before another one crashed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace megatron {

/// The end of a rank.
struct RankEnd {
  std::int64_t rank = 0;
  int status = 0;     ///< as waitpid() returns it
  std::string cause;  ///< the failure of another rank that it reported as its reason; or ""
};

/// Returns the exit code of a rank; 128 + the signal if it was killed.
int exit_code_of(int status);
/// Returns for example "signal 9 (SIGKILL)".
std::string signal_text(int signal);
/// Returns for example "ended with exit code 1".
std::string describe_end(int status);
/// Returns whether a rank that saved and stopped after a signal exits with this code.
bool is_code_of_stop(int code);

class FirstFailure {
 public:
  /// In ascending order of how much an end explains.
  enum class Kind : std::uint8_t { none, stopped_on_request, consequence, own };

  /// Records ends that were seen at the same time. Returns whether another rank than before is the
  /// one that failed.
  bool record(std::vector<RankEnd> ends);
  /// Records that all ranks were sent this signal, so that it explains their ends.
  void record_signal(int signal) { signals_.insert(signal); }
  /// Records that the launcher ends the ranks from now on: later ends explain nothing, unless no
  /// rank has failed.
  void record_termination() { is_terminated_ = true; }

  Kind kind() const { return kind_; }
  /// Returns the end of the rank that failed. Its kind must not be none.
  const RankEnd& end() const { return end_; }

 private:
  Kind kind_of(const RankEnd& end) const;

  Kind kind_ = Kind::none;
  RankEnd end_;
  std::set<int> signals_;
  bool is_terminated_ = false;
};

}  // namespace megatron
