// Polite stopping: a signal asks the loop to finish its iteration, save and exit. A second one
// changes nothing, so a save is never cut off by a scheduler that repeats itself; a third one ends
// the process at once.
#pragma once

#include <optional>
#include <string>

namespace megatron {

/// Catches SIGTERM, SIGUSR1, SIGINT and one further signal while it lives; the earlier handlers
/// come back afterwards. At most one may live at a time.
class StopSignalHandler {
 public:
  /// `exit_signal` is a value of --exit-signal. What a signal brings is told on stderr, by one rank of
  /// a run.
  explicit StopSignalHandler(const std::string& exit_signal = "SIGTERM", bool prints = true);
  StopSignalHandler(const StopSignalHandler&) = delete;
  StopSignalHandler& operator=(const StopSignalHandler&) = delete;
  ~StopSignalHandler();

  /// The signal that came first, if any.
  std::optional<int> received() const;
};

/// "SIGTERM", "SIGUSR1", …
std::string signal_name(int signal);

/// 143 after SIGTERM and SIGUSR1, with which schedulers announce the end of a job, so that one code
/// means "saved, to be resumed"; else 128 + signal.
int exit_code_after(int signal);

}  // namespace megatron
