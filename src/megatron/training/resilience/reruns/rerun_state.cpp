#include "megatron/training/resilience/reruns/rerun_state.h"

#include <array>

#include "megatron/base/error.h"

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

}  // namespace megatron
