// The flags of result validation and of determinism.
#include "megatron/config/settings_tables.h"

namespace megatron {

const FieldTable<RerunConfig>& rerun_table() {
  using Config = RerunConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Result validation");
    t.field("rerun_mode", &Config::rerun_mode,
            "what a suspicious result leads to; validate_results: the step runs again to tell a "
            "fault of the machine from a correct result; "
            "report_stats: every step runs twice and the differences are reported")
        .choices({"disabled", "validate_results", "report_stats"});
    t.field("check_for_spiky_loss", &Config::check_for_spiky_loss,
            "a loss of 10 times the largest of the first 100 microbatches is suspicious");
    t.field("check_for_large_grads", &Config::check_for_large_grads,
            "a gradient norm of 10 times the largest of the first 100 steps is suspicious");
    t.field("error_injection_rate", &Config::error_injection_rate,
            "one in so many validations fails for a trial; 0: none")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("error_injection_type", &Config::error_injection_type,
            "what the injected error turns out to be")
        .choices({"correct_result", "transient_error", "persistent_error"});
    t.field("result_rejected_tracker_filename", &Config::result_rejected_tracker_filename,
            "file of rejected results; iterations rejected twice in the same way are passed over")
        .value_name("FILE");
    return t;
  }();
  return table;
}

}  // namespace megatron
