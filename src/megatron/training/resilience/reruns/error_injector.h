// Makes results look wrong now and then, to try out what follows (--error-injection-rate,
// --error-injection-type).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/training/resilience/reruns/rerun_state.h"

namespace megatron {

class ErrorInjector {
 public:
  /// One in `rate` validations fails; 0: none.
  ErrorInjector(std::int64_t rate, RerunDiagnostic type, std::uint64_t seed)
      : rate_(rate), type_(type), seed_(seed) {}

  bool is_on() const { return rate_ > 0; }
  /// Whether to reject validation `number` of `iteration` although nothing is wrong: at most one at
  /// a time.
  bool inject(std::int64_t iteration, std::int64_t number);
  /// The relative difference of a rerun to pretend (0 or infinity), or nothing when no error is
  /// under way.
  std::optional<double> simulated_difference(RerunState state);

  std::optional<RerunDiagnostic> injected() const { return injected_; }
  void set_injected(std::optional<RerunDiagnostic> injected) { injected_ = injected; }
  /// "Injecting error type Transient error"
  std::string announcement() const;

 private:
  std::int64_t rate_;
  RerunDiagnostic type_;
  std::uint64_t seed_;
  std::optional<RerunDiagnostic> injected_;
};

}  // namespace megatron
