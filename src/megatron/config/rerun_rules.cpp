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

using namespace rules;

/// Returns the flag with which no replica computes a microbatch alone; empty if there is none.
Words shared_by(S s) {
  if (s.parallel->expert_model_parallel_size > 1) return &Parallel::expert_model_parallel_size;
  if (s.parallel->hybrid_context_parallel) return &Parallel::hybrid_context_parallel;
  return zero_stage(*s.parallel) > 1 ? stage_flag(s) : Words();
}

/// Returns the flag that packs sequences; empty if none does.
Words packing_flag(S s) {
  if (s.data->dataloader_inter_document_masking) return &Data::dataloader_inter_document_masking;
  return s.data->sft ? Words(&Data::sft) : Words();
}

/// Returns why no replica can compute the microbatch of another; empty if it can.
Words not_recomputed_because_of(S s) {
  if (const Words flag = shared_by(s); !flag.empty())
    return flag + ", with which replicas compute a microbatch together";
  if (const Words flag = packing_flag(s); !flag.empty())
    return flag + ", with which replicas pack sequences of different numbers and lengths";
  return {};
}

}  // namespace

Problems validate_reruns(const Settings& settings, const FieldNames& skip) {
  static const Rules rules = {
      idle({&Rerun::check_for_spiky_loss, &Rerun::check_for_large_grads},
           is(&Rerun::rerun_mode, "disabled"),
           {.fix = {"use ", &Rerun::rerun_mode, " validate_results"}}),
      refuse({&Rerun::error_injection_rate, without(is(&Rerun::rerun_mode, "validate_results"))},
             {"has no effect with ", with_value(&Rerun::rerun_mode)},
             {"use ", &Rerun::rerun_mode, " validate_results"}),
      refuse({&Rerun::error_injection_rate, &Training::check_for_nan_in_loss_and_grad,
              without(&Rerun::check_for_spiky_loss), without(&Rerun::check_for_large_grads)},
             "has no effect because no result is checked",
             {"leave ", off(&Training::check_for_nan_in_loss_and_grad), " out, or add ",
              &Rerun::check_for_spiky_loss}),
      when([](S s) { return !not_recomputed_because_of(s).empty(); },
           refuse({&Parallel::check_microbatch_across_dp_replicas_interval},
                  {"excludes ", not_recomputed_because_of}, "leave one of the two out")),
  };
  return evaluate(rules, settings, skip);
}

}  // namespace megatron
