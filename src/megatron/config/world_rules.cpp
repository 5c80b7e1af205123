#include "megatron/config/world_rules.h"

#include <algorithm>
#include <initializer_list>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_rules.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/schedules/hybrid_context_schedule.h"

namespace megatron {
namespace {

using namespace rules;

/// Returns the batch schedule, or nullopt if the flags do not form one, which batch_rules() report.
std::optional<NumMicrobatchesCalculator> batches(const TrainingConfig& training,
                                                 std::int64_t num_replicas) {
  if (training.micro_batch_size < 1 || training.seq_length < 1) return std::nullopt;
  try {
    return NumMicrobatchesCalculator(training, num_replicas);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string unit_text(std::int64_t micro, std::int64_t num_replicas) {
  return "--micro-batch-size " + text_of(micro) + " x " + text_of(num_replicas) +
         " data-parallel ranks = " + text_of(micro * num_replicas);
}

/// Returns "use --flag 8 or 12" with the multiples of `unit` next to `size`.
std::string nearest(const Setting& setting, std::int64_t size, std::int64_t unit) {
  return "use " + setting.flag() + " " + multiples_near(size, unit);
}

void check_global_batch(const TrainingConfig& t, std::int64_t num_replicas, Problems& problems) {
  const std::int64_t unit = t.micro_batch_size * num_replicas;
  const bool applies = t.global_batch_size > 0 && t.step_batch_size_schedule.empty() &&
                       !t.decrease_batch_size_if_needed;
  if (!applies || t.global_batch_size % t.micro_batch_size != 0 || t.global_batch_size % unit == 0)
    return;
  problems.add({Setting(&Training::global_batch_size).flag(),
                text_of(t.global_batch_size) + " is no multiple of " +
                    unit_text(t.micro_batch_size, num_replicas),
                nearest(&Training::global_batch_size, t.global_batch_size, unit) +
                    ", or add --decrease-batch-size-if-needed"});
}

/// Checks the sizes of a ramp or step schedule, unless a checkpoint determines the first one.
void check_schedule(const Settings& s, std::int64_t num_replicas, Problems& problems) {
  const auto alone = batches(*s.training, 1), here = batches(*s.training, num_replicas);
  if (!here || here->is_constant() || !s.checkpoint->load.empty() || alone->indivisible_size(0))
    return;
  const auto size = here->indivisible_size(0);
  if (!size || *size == s.training->global_batch_size) return;
  const Setting flag = s.training->step_batch_size_schedule.empty()
                           ? &Training::rampup_batch_size
                           : Setting(&Training::step_batch_size_schedule);
  problems.add({flag.flag(),
                "a batch of " + text_of(*size) + " is no multiple of " +
                    unit_text(s.training->micro_batch_size, num_replicas),
                "choose sizes that are"});
}

void check_first_batch(const TrainingConfig& t, std::int64_t num_replicas, Problems& problems) {
  const auto alone = batches(t, 1), here = batches(t, num_replicas);
  if (!here) return;
  if (t.decrease_batch_size_if_needed && alone->at(0).num_microbatches > 0 &&
      here->at(0).num_microbatches < 1) {
    problems.add({Setting(&Training::micro_batch_size).flag(),
                  unit_text(t.micro_batch_size, num_replicas) +
                      " is more than the first batch of " + text_of(here->at(0).global_batch_size),
                  "raise the batch size, or start fewer processes"});
  }
}

/// Checks the microbatches of the first step, unless a checkpoint determines the first step.
void check_pipeline(const Settings& s, std::int64_t num_replicas, Problems& problems) {
  const auto here = batches(*s.training, num_replicas);
  if (!here || (!here->is_constant() && !s.checkpoint->load.empty())) return;
  problems.add(check_pipeline_batches(s, here->at(0).num_microbatches));
}

void check_evaluation(const TrainingConfig& t, std::int64_t num_replicas, Problems& problems) {
  const std::int64_t micro = t.eval_micro_batch_size.value_or(t.micro_batch_size);
  const std::int64_t global = t.eval_global_batch_size.value_or(t.global_batch_size);
  const bool given = t.eval_global_batch_size || t.eval_micro_batch_size;
  if (!given || micro < 1 || global < 1 || !t.step_batch_size_schedule.empty()) return;
  if (global % micro != 0 || global % (micro * num_replicas) == 0) return;
  problems.add({Setting(&Training::eval_global_batch_size).flag(),
                text_of(global) + " is no multiple of the micro batch size of evaluation, " +
                    text_of(micro) + ", x " + text_of(num_replicas) + " data-parallel ranks",
                nearest(&Training::eval_global_batch_size, global, micro * num_replicas)});
}

void check_instances(const ParallelConfig& parallel, std::int64_t num_replicas,
                     Problems& problems) {
  const std::int64_t instances = parallel.num_distributed_optimizer_instances,
                     ranks = num_replicas * parallel.context_parallel_size;
  if (instances <= 1 || ranks % instances == 0) return;
  problems.add({Setting(&Parallel::num_distributed_optimizer_instances).flag(),
                text_of(instances) + " does not divide the " + text_of(ranks) +
                    " ranks that hold the same weights",
                "use a divisor of " + text_of(ranks)});
}

/// Checks that a document as long as a sample fits the ranks that may share it.
void check_hybrid_context(const Settings& s, std::int64_t num_replicas, Problems& problems) {
  const ParallelConfig& p = *s.parallel;
  if (!p.hybrid_context_parallel || p.max_seqlen_per_dp_cp_rank < 1) return;
  const std::int64_t ranks = num_replicas * p.context_parallel_size,
                     block = largest_context_block(ranks),
                     multiple = p.sequence_parallel ? p.tensor_model_parallel_size : 1,
                     needed = padded_length(s.training->seq_length, block, multiple) / block;
  if (needed <= p.max_seqlen_per_dp_cp_rank) return;
  problems.add({Setting(&Parallel::max_seqlen_per_dp_cp_rank).flag(),
                text_of(p.max_seqlen_per_dp_cp_rank) + " tokens on each of " + text_of(block) +
                    (block == ranks ? "" : " (of " + text_of(ranks) + ")") +
                    " ranks hold no document of --seq-length " + text_of(s.training->seq_length),
                "use at least " + text_of(needed) +
                    (block == ranks ? "" : ", or a power of two of ranks with the same weights")});
}

bool all_readable(const FieldNames& skip, std::initializer_list<Setting> settings) {
  return std::ranges::none_of(
      settings, [&](const Setting& setting) { return skip.contains(setting.name()); });
}

}  // namespace

Problems check_world(const Settings& settings, std::int64_t world_size, const FieldNames& skip) {
  const bool has_degrees = all_readable(
      skip, {&Parallel::tensor_model_parallel_size, &Parallel::pipeline_model_parallel_size,
             &Parallel::context_parallel_size, &Parallel::expert_model_parallel_size,
             &Parallel::expert_tensor_parallel_size});
  if (!has_degrees) return {};
  Problems problems = check_mesh_sizes(mesh_sizes(*settings.parallel), world_size);
  if (!problems.empty()) return problems;
  const std::int64_t num_replicas = data_parallel_size(settings, world_size);
  if (all_readable(skip, {&Parallel::num_distributed_optimizer_instances}))
    check_instances(*settings.parallel, num_replicas, problems);
  if (all_readable(skip, {&Parallel::hybrid_context_parallel, &Parallel::max_seqlen_per_dp_cp_rank,
                          &Training::seq_length, &Parallel::sequence_parallel}))
    check_hybrid_context(settings, num_replicas, problems);
  const bool has_batches =
      settings.training->micro_batch_size > 0 &&
      all_readable(
          skip, {&Training::micro_batch_size, &Training::global_batch_size, &Training::seq_length,
                 &Training::rampup_batch_size, &Training::step_batch_size_schedule});
  if (!has_batches) return problems;
  check_global_batch(*settings.training, num_replicas, problems);
  check_schedule(settings, num_replicas, problems);
  check_first_batch(*settings.training, num_replicas, problems);
  if (all_readable(skip, {&Model::num_layers, &Parallel::pipeline_schedule,
                          &Parallel::num_virtual_stages_per_pipeline_rank,
                          &Parallel::num_layers_per_virtual_pipeline_stage,
                          &Parallel::pipeline_model_parallel_layout,
                          &Parallel::microbatch_group_size_per_virtual_pipeline_stage}))
    check_pipeline(settings, num_replicas, problems);
  if (all_readable(skip, {&Training::eval_global_batch_size, &Training::eval_micro_batch_size}))
    check_evaluation(*settings.training, num_replicas, problems);
  return problems;
}

std::int64_t data_parallel_size(const Settings& settings, std::int64_t world_size) {
  return data_parallel_size(mesh_sizes(*settings.parallel), world_size);
}

}  // namespace megatron
