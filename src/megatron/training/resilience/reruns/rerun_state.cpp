#include "megatron/training/resilience/reruns/rerun_state.h"

#include <array>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"

namespace megatron {
namespace {

constexpr std::array kDiagnostics{std::string_view("correct_result"),
                                  std::string_view("transient_error"),
                                  std::string_view("persistent_error")};
constexpr std::array kModes{std::string_view("disabled"), std::string_view("validate_results"),
                            std::string_view("report_stats")};
constexpr std::array kStatuses{std::string_view("RERUN_DISABLED"),
                               std::string_view("INITIAL_RUN"),
                               std::string_view("FIRST_RERUN_NOT_REPRODUCIBLE"),
                               std::string_view("FIRST_RERUN_REPRODUCIBLE"),
                               std::string_view("SECOND_RERUN_NOT_REPRODUCIBLE"),
                               std::string_view("SECOND_RERUN_REPRODUCIBLE")};

template <class Enum, std::size_t N>
Enum find(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  throw UserError({"rerun state machine", "'" + std::string(name) + "' is not a known value",
                   "one of its settings, or the checkpoint, is damaged"});
}

}  // namespace

RerunMode rerun_mode(std::string_view name) { return find<RerunMode>(kModes, name); }
RerunDiagnostic rerun_diagnostic(std::string_view name) {
  return find<RerunDiagnostic>(kDiagnostics, name);
}
std::string_view name_of(RerunDiagnostic diagnostic) {
  return kDiagnostics[static_cast<std::size_t>(diagnostic)];
}
std::string_view name_of(RerunStatus status) { return kStatuses[static_cast<std::size_t>(status)]; }

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
