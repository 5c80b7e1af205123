// Declares the flags of result validation.
#include "megatron/config/rerun_config.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"

namespace megatron {

const FieldTable<RerunConfig>& rerun_table() {
  using Config = RerunConfig;
  return field_table<Config>([](auto& t) {
    t.group("Result validation").following().left_out_of_check();
    t.field("rerun_mode", &Config::rerun_mode,
            "what to do about a suspicious result; validate_results: run the step again to tell a "
            "hardware fault from a correct result; report_stats: run every step twice and report "
            "the differences")
        .choices({"disabled", "validate_results", "report_stats"});
    t.field("check_for_spiky_loss", &Config::check_for_spiky_loss,
            "treat a loss of 10 times the largest loss of the first 100 microbatches as "
            "suspicious");
    t.field("check_for_large_grads", &Config::check_for_large_grads,
            "treat a gradient norm of 10 times the largest norm of the first 100 steps as "
            "suspicious");
    t.field("error_injection_rate", &Config::error_injection_rate,
            "inject an error into one in this many validations, as a test; 0: never")
        .between(0, kMaxSize);
    t.field("error_injection_type", &Config::error_injection_type,
            "outcome that the injected error simulates")
        .choices({"correct_result", "transient_error", "persistent_error"});
    t.field("result_rejected_tracker_filename", &Config::result_rejected_tracker_filename,
            "file that records rejected results; iterations that were rejected twice in the same "
            "way are skipped")
        .value_name("FILE");
  });
}

}  // namespace megatron
