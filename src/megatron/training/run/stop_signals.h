// Handles stop signals. The first signal asks the loop to finish its iteration, save and exit. A
// second signal is ignored, so that a scheduler that repeats its signal does not interrupt the
// save. A third signal ends the process at once.
#pragma once

#include <optional>
#include <string>

namespace megatron {

/// Catches SIGTERM, SIGUSR1, SIGINT and `exit_signal` during its lifetime; the destructor restores
/// the previous handlers. Ranks that are threads of one process share the handlers of the first
/// instance.
class StopSignalHandler {
 public:
  /// `exit_signal` is a value of --exit-signal. With `prints`, messages about received signals go
  /// to stderr; set it on one rank only.
  explicit StopSignalHandler(const std::string& exit_signal = "SIGTERM", bool prints = true);
  StopSignalHandler(const StopSignalHandler&) = delete;
  StopSignalHandler& operator=(const StopSignalHandler&) = delete;
  ~StopSignalHandler();

  /// Returns the first signal received, if any.
  std::optional<int> received() const;
};

/// Returns the name of a signal, such as "SIGTERM".
std::string signal_name(int signal);

}  // namespace megatron
