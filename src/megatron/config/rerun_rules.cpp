// Rules on result validation.
#include "megatron/config/data_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rerun_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using S = const Settings&;

bool is_disabled(S s) { return s.rerun->rerun_mode == "disabled"; }

UserError::Parts needs_reruns(const std::string& flag) {
  return {flag, "has no effect with --rerun-mode disabled",
          "use --rerun-mode validate_results, or leave " + flag + " out"};
}

/// Returns the flag with which no replica computes a microbatch alone; "" when there is none.
std::string shared_by(S s) {
  if (s.parallel->expert_model_parallel_size > 1) return "--expert-model-parallel-size";
  if (s.parallel->hybrid_context_parallel) return "--hybrid-context-parallel";
  return zero_stage(*s.parallel) > 1 ? stage_flag(*s.parallel) : "";
}

/// Returns the flag that packs sequences; "" when none does.
std::string packing_flag(S s) {
  if (s.data->dataloader_inter_document_masking) return "--dataloader-inter-document-masking";
  return s.data->sft ? "--sft" : "";
}

/// Returns why no replica can compute the microbatch of another; "" when it can.
std::string not_recomputed_because_of(S s) {
  if (const std::string flag = shared_by(s); !flag.empty())
    return flag + ", with which replicas compute a microbatch together";
  if (const std::string flag = packing_flag(s); !flag.empty())
    return flag + ", with which replicas pack sequences of different numbers and lengths";
  return "";
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
      {{"check_microbatch_across_dp_replicas_interval", "expert_model_parallel_size",
        "hybrid_context_parallel", "zero_stage", "data_parallel_sharding_strategy",
        "dataloader_inter_document_masking", "sft"},
       [](S s) {
         return s.parallel->check_microbatch_across_dp_replicas_interval > 0 &&
                !not_recomputed_because_of(s).empty();
       },
       [](S s) {
         return UserError::Parts{"--check-microbatch-across-dp-replicas-interval",
                                 "excludes " + not_recomputed_because_of(s),
                                 "leave one of the two out"};
       }},
  };
  return evaluate(rules, settings, skip);
}

}  // namespace megatron
