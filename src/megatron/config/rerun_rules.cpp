// Rules on result validation.
#include "megatron/config/rerun_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;

bool is_disabled(S s) { return s.rerun->rerun_mode == "disabled"; }

UserError::Parts needs_reruns(const std::string& flag) {
  return {flag, "has no effect with --rerun-mode disabled",
          "use --rerun-mode validate_results, or leave " + flag + " out"};
}

}  // namespace

Problems validate_reruns(const Settings& settings, const FieldNames& skip) {
  static const std::vector<Rule> rules = {
      {{"rerun_mode", "check_for_spiky_loss"},
       [](S s) { return is_disabled(s) && s.rerun->check_for_spiky_loss; },
       [](S) { return needs_reruns("--check-for-spiky-loss"); }},
      {{"rerun_mode", "check_for_large_grads"},
       [](S s) { return is_disabled(s) && s.rerun->check_for_large_grads; },
       [](S) { return needs_reruns("--check-for-large-grads"); }},
      {{"rerun_mode", "error_injection_rate"},
       [](S s) {
         return s.rerun->rerun_mode != "validate_results" && s.rerun->error_injection_rate > 0;
       },
       [](S s) {
         return UserError::Parts{"--error-injection-rate",
                                 "has no effect with --rerun-mode " + s.rerun->rerun_mode,
                                 "use --rerun-mode validate_results"};
       }},
      {{"error_injection_rate", "check_for_nan_in_loss_and_grad"},
       [](S s) {
         return s.rerun->error_injection_rate > 0 && !s.training->check_for_nan_in_loss_and_grad &&
                !s.rerun->check_for_spiky_loss && !s.rerun->check_for_large_grads;
       },
       [](S) {
         return UserError::Parts{
             "--error-injection-rate", "has no effect because no result is checked",
             "leave --no-check-for-nan-in-loss-and-grad out, or add --check-for-spiky-loss"};
       }},
  };
  return evaluate(rules, settings, skip);
}

}  // namespace megatron
