#include "megatron/config/world_rules.h"

#include <algorithm>
#include <initializer_list>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/parallel_config.h"
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

/// Returns "--micro-batch-size 2 x 4 data-parallel ranks = 8".
Words unit_words(S s, std::int64_t num_replicas) {
  return {with_value(&Training::micro_batch_size), " x ", num_replicas,
          " data-parallel ranks = ", s.training->micro_batch_size * num_replicas};
}

std::optional<Message> wrong_global_batch(S s, std::int64_t num_replicas) {
  const TrainingConfig& t = *s.training;
  const std::int64_t unit = t.micro_batch_size * num_replicas;
  const bool applies = t.global_batch_size > 0 && t.step_batch_size_schedule.empty() &&
                       !t.decrease_batch_size_if_needed;
  if (!applies || t.global_batch_size % t.micro_batch_size != 0 || t.global_batch_size % unit == 0)
    return std::nullopt;
  return Message{
      &Training::global_batch_size,
      Words{value(&Training::global_batch_size), " is no multiple of "} +
          unit_words(s, num_replicas),
      {"use ", &Training::global_batch_size, " ", multiples_near(t.global_batch_size, unit),
       ", or add ", &Training::decrease_batch_size_if_needed}};
}

/// Checks the sizes of a ramp or step schedule, unless a checkpoint determines the first one.
std::optional<Message> wrong_schedule(S s, std::int64_t num_replicas) {
  const auto alone = batches(*s.training, 1), here = batches(*s.training, num_replicas);
  if (!here || here->is_constant() || !s.checkpoint->load.empty() || alone->indivisible_size(0))
    return std::nullopt;
  const auto size = here->indivisible_size(0);
  if (!size || *size == s.training->global_batch_size) return std::nullopt;
  return Message{s.training->step_batch_size_schedule.empty()
                     ? &Training::rampup_batch_size
                     : Words(&Training::step_batch_size_schedule),
                 Words{"a batch of ", *size, " is no multiple of "} + unit_words(s, num_replicas),
                 "choose sizes that are"};
}

std::optional<Message> wrong_first_batch(S s, std::int64_t num_replicas) {
  const auto alone = batches(*s.training, 1), here = batches(*s.training, num_replicas);
  if (!here || !s.training->decrease_batch_size_if_needed || alone->at(0).num_microbatches == 0 ||
      here->at(0).num_microbatches > 0)
    return std::nullopt;
  return Message{&Training::micro_batch_size,
                 unit_words(s, num_replicas) +
                     Words{" is more than the first batch of ", here->at(0).global_batch_size},
                 "raise the batch size, or start fewer processes"};
}

std::optional<Message> wrong_evaluation(S s, std::int64_t num_replicas) {
  const TrainingConfig& t = *s.training;
  const std::int64_t micro = t.eval_micro_batch_size.value_or(t.micro_batch_size);
  const std::int64_t global = t.eval_global_batch_size.value_or(t.global_batch_size);
  const bool given = t.eval_global_batch_size || t.eval_micro_batch_size;
  if (!given || micro < 1 || global < 1 || !t.step_batch_size_schedule.empty() ||
      global % micro != 0 || global % (micro * num_replicas) == 0)
    return std::nullopt;
  return Message{&Training::eval_global_batch_size,
                 {global, " is no multiple of the micro batch size of evaluation, ", micro, ", x ",
                  num_replicas, " data-parallel ranks"},
                 {"use ", &Training::eval_global_batch_size, " ",
                  multiples_near(global, micro * num_replicas)}};
}

std::optional<Message> wrong_instances(S s, std::int64_t num_replicas) {
  const std::int64_t instances = s.parallel->num_distributed_optimizer_instances,
                     ranks = num_replicas * s.parallel->context_parallel_size;
  if (instances <= 1 || ranks % instances == 0) return std::nullopt;
  return Message{&Parallel::num_distributed_optimizer_instances,
                 {instances, " does not divide the ", ranks, " ranks that hold the same weights"},
                 {"use a divisor of ", ranks}};
}

/// Checks that a document as long as a sample fits the ranks that may share it.
std::optional<Message> wrong_hybrid_context(S s, std::int64_t num_replicas) {
  const ParallelConfig& p = *s.parallel;
  if (!p.hybrid_context_parallel || p.max_seqlen_per_dp_cp_rank < 1) return std::nullopt;
  const std::int64_t ranks = num_replicas * p.context_parallel_size,
                     block = largest_context_block(ranks),
                     multiple = p.sequence_parallel ? p.tensor_model_parallel_size : 1,
                     needed = padded_length(s.training->seq_length, block, multiple) / block;
  if (needed <= p.max_seqlen_per_dp_cp_rank) return std::nullopt;
  const bool is_part = block != ranks;
  return Message{&Parallel::max_seqlen_per_dp_cp_rank,
                 {value(&Parallel::max_seqlen_per_dp_cp_rank), " tokens on each of ", block,
                  is_part ? " (of " + text_of(ranks) + ")" : "", " ranks hold no document of ",
                  with_value(&Training::seq_length)},
                 {"use at least ", needed,
                  is_part ? ", or a power of two of ranks with the same weights" : ""}};
}

/// Checks the microbatches of the first step, unless a checkpoint determines the first step.
Problems check_pipeline(S s, std::int64_t num_replicas) {
  const auto here = batches(*s.training, num_replicas);
  if (!here || (!here->is_constant() && !s.checkpoint->load.empty())) return {};
  return check_pipeline_batches(s, here->at(0).num_microbatches);
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
  const auto add = [&](const std::optional<Message>& message) {
    if (message && !message->mentions_any(skip, settings)) problems.add(message->text(settings));
  };
  add(wrong_instances(settings, num_replicas));
  if (all_readable(skip, {&Parallel::hybrid_context_parallel, &Parallel::sequence_parallel}))
    add(wrong_hybrid_context(settings, num_replicas));
  const bool has_batches =
      settings.training->micro_batch_size > 0 &&
      all_readable(
          skip, {&Training::micro_batch_size, &Training::global_batch_size, &Training::seq_length,
                 &Training::rampup_batch_size, &Training::step_batch_size_schedule});
  if (!has_batches) return problems;
  add(wrong_global_batch(settings, num_replicas));
  add(wrong_schedule(settings, num_replicas));
  add(wrong_first_batch(settings, num_replicas));
  if (all_readable(skip, {&Model::num_layers, &Parallel::pipeline_schedule,
                          &Parallel::num_virtual_stages_per_pipeline_rank,
                          &Parallel::num_layers_per_virtual_pipeline_stage,
                          &Parallel::pipeline_model_parallel_layout,
                          &Parallel::microbatch_group_size_per_virtual_pipeline_stage}))
    problems.add(check_pipeline(settings, num_replicas));
  if (all_readable(skip, {&Training::eval_micro_batch_size}))
    add(wrong_evaluation(settings, num_replicas));
  return problems;
}

std::int64_t data_parallel_size(const Settings& settings, std::int64_t world_size) {
  return data_parallel_size(mesh_sizes(*settings.parallel), world_size);
}

}  // namespace megatron
