// Polite stopping: SIGTERM and SIGINT ask the loop to finish its iteration and save; a second one of the same kind ends the process at once.
#pragma once

#include <optional>
#include <string>

namespace megatron {

/// Catches SIGTERM and SIGINT while it lives; the earlier handlers come back afterwards. At most one may live at a time.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The signal that came first, if any.
  std::optional<int> received() const;
};

/// "SIGTERM" or "SIGINT".
std::string signal_name(int signal);

}  // namespace megatron
