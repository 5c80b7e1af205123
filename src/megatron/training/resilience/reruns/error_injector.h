// Injects errors into result validation at random, to test how reruns handle them
// (--error-injection-rate, --error-injection-type).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/training/resilience/reruns/rerun_state.h"

namespace megatron {

class ErrorInjector {
 public:
  /// On average one in `rate` validations fails; 0: none.
  ErrorInjector(std::int64_t rate, RerunDiagnostic type, std::uint64_t seed)
      : rate_(rate), type_(type), seed_(seed) {}

  bool is_on() const { return rate_ > 0; }
  /// Returns whether to reject validation `number` of `iteration` although the result is correct.
  /// At most one injected error is active at a time.
  bool inject(std::int64_t iteration, std::int64_t number);
  /// Returns the relative difference (0 or infinity) that a rerun must report, or nullopt when no
  /// injected error is active.
  std::optional<double> simulated_difference(RerunState state);

  std::optional<RerunDiagnostic> injected() const { return injected_; }
  void set_injected(std::optional<RerunDiagnostic> injected) { injected_ = injected; }
  /// Returns "Injecting error type Transient error".
  std::string announcement() const;

 private:
  std::int64_t rate_;
  RerunDiagnostic type_;
  std::uint64_t seed_;
  std::optional<RerunDiagnostic> injected_;
};

}  // namespace megatron
