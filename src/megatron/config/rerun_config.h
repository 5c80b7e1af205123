// The settings of the validation of suspicious results.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// The validation of suspicious results (Megatron's rerun state machine).
struct RerunConfig {
  std::string rerun_mode = "validate_results";  ///< disabled | validate_results | report_stats
  bool check_for_spiky_loss = false, check_for_large_grads = false;
  std::int64_t error_injection_rate = 0;
  /// correct_result | transient_error | persistent_error
  std::string error_injection_type = "transient_error";
  std::string result_rejected_tracker_filename;
};

}  // namespace megatron
