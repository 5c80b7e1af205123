#include "megatron/training/resilience/reruns/error_injector.h"

#include <limits>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"

namespace megatron {

bool ErrorInjector::inject(std::int64_t iteration, std::int64_t number) {
  if (rate_ <= 0 || injected_) return false;
  const std::uint32_t draw =
      philox_block(philox_key(seed_, "error_injector"), static_cast<std::uint64_t>(number),
                   static_cast<std::uint64_t>(iteration))[0];
  if (draw % static_cast<std::uint64_t>(rate_) != 0) return false;
  injected_ = type_;
  return true;
}

std::optional<double> ErrorInjector::simulated_difference(RerunState state) {
  if (!injected_) return std::nullopt;
  constexpr double kSame = 0, kOther = std::numeric_limits<double>::infinity();
  const RerunDiagnostic injected = *injected_;
  if (state == RerunState::rerunning_in_place) {
    if (injected != RerunDiagnostic::transient_error) return kSame;
    injected_.reset();
    return kOther;
  }
  MEGATRON_CHECK(state == RerunState::rerunning_from_checkpoint &&
                     injected != RerunDiagnostic::transient_error,
                 "an injected error of kind ", int(injected), " in rerun state ", int(state));
  injected_.reset();
  return injected == RerunDiagnostic::persistent_error ? kOther : kSame;
}

std::string ErrorInjector::announcement() const {
  const char* names[] = {"Expected result", "Transient error", "Persistent error"};
  return std::string("Injecting error type ") + names[static_cast<int>(type_)];
}

}  // namespace megatron
