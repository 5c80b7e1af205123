// Implements the step of set_up() that builds model, weights and optimizer.
#include <algorithm>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/models/freeze.h"
#include "megatron/models/model_spec.h"
#include "megatron/optimizer/state_offload.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"
#include "megatron/planner/rank_memory.h"
#include "megatron/training/loop/setup.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/run/open_offload_store.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/saving/checkpointing.h"

namespace megatron {
namespace {

/// Returns whether a layer offloads some of its activations.
bool offloads_activations(const TrainingPlan& plan) {
  const ActivationPlan activations = activation_plan(*plan.settings.memory, plan.pipeline.layout());
  return std::ranges::any_of(activations.layers, &LayerPolicy::offloads);
}

std::unique_ptr<Model> build_model(const TrainingPlan& plan, OffloadStore* offload_store,
                                   std::ostream& out) {
  out << "building " << plan.family->title << " model ..." << std::endl;
  const Settings& settings = plan.settings;
  const ActivationPlan activations = activation_plan(*settings.memory, plan.pipeline.layout());
  return plan.family->make(
      *settings.model, plan.rank,
      MakeModelOptions{.vocab_pad_multiple = settings.tokenizer->make_vocab_size_divisible_by,
                       .dtype = plan.params_dtype,
                       .layout = &plan.pipeline.layout(),
                       .activations = &activations,
                       .offload_store = offload_store});
}

std::unique_ptr<ParamStore> bind_weights(const TrainingPlan& plan, Model& model,
                                         std::shared_ptr<OffloadStore> value_store,
                                         Communicators* communicators, std::ostream& out) {
  ParamStore::Options options =
      store_options(plan.settings, plan.rank, plan.params_dtype, communicators);
  const UnitParameters units =
      unit_parameters(model, plan.settings, plan.rank, plan.pipeline.layout());
  options.unit_starts = units.starts;
  options.offloaded_values = units.offloaded;
  options.value_store = std::move(value_store);
  auto weights = std::make_unique<ParamStore>(declared_parameters(model), std::move(options));
  out << parameter_count_line(weights->num_parameters()) << std::endl;
  return weights;
}

/// Returns where optimizer state is offloaded to. Throws and warns as open_offload_store() does.
StateOffloadOptions optimizer_offload(const TrainingPlan& plan, StartupWarnings& warnings,
                                      std::ostream& out) {
  const OffloadConfig& config = plan.settings.memory->offload;
  if (!config.optimizer_cpu_offload) return {};
  return {.store = open_offload_store({.config = config,
                                       .flag = "--optimizer-cpu-offload",
                                       .max_bytes_in_flight = kOptimizerBytesInFlight},
                                      plan.rank.device, warnings, out),
          .fraction = config.optimizer_offload_fraction,
          .overlaps_copies = config.overlap_cpu_optimizer_d2h_h2d};
}

/// Draws the initial weights, or loads the checkpoint; both where heads are new.
void fill_weights(const TrainingPlan& plan, TrainingState& state, const BuildContext& context,
                  std::ostream& out) {
  const bool draws = !plan.source || plan.source->replaces_heads;
  if (draws && state.optimizer)
    state.optimizer->main_parameters().initialize(plan.rank.seed);
  else if (draws)
    state.weights->initialize(plan.rank.seed);
  if (plan.source) load_training_state(plan, state, context.timers, context.warnings, out);
}

void check_batch_sizes(const TrainingPlan& plan, std::int64_t consumed) {
  const auto size = plan.batches.indivisible_size(consumed);
  if (!size) return;
  const std::int64_t ranks = plan.rank.dp.size;
  const std::string ranks_text =
      ranks == 1 ? "" : " times " + std::to_string(ranks) + " data-parallel ranks";
  throw UserError({"a batch of " + std::to_string(*size) + " samples, due from here on (" +
                       std::to_string(consumed) + " samples are consumed)",
                   "is no multiple of --micro-batch-size " +
                       std::to_string(plan.settings.training->micro_batch_size) + ranks_text,
                   "choose sizes that are, or add --decrease-batch-size-if-needed"});
}

/// Returns the batch of the first step. Prints the pipeline's schedule for it.
StepBatch first_batch(const TrainingPlan& plan, const TrainingProgress& progress,
                      std::ostream& out) {
  const std::int64_t consumed = progress.consumed_train_samples;
  const StepBatch batch = plan.batches.at(consumed);
  if (plan.settings.training->skip_train) return batch;
  check_batch_sizes(plan, consumed);
  if (plan.rank.pp.size > 1)
    out << plan.pipeline.table(batch.num_microbatches)
        << std::flush;  // UserError when there is no valid schedule
  return batch;
}

}  // namespace

void build_state(const TrainingPlan& plan, TrainingState& state, const BuildContext& context,
                 std::ostream& out) {
  const Settings& settings = plan.settings;
  if (offloads_activations(plan) || settings.memory->offload.cpu_offloading_weights)
    state.offload_store =
        open_offload_store({.config = settings.memory->offload,
                            .flag = offloading_flag(*settings.memory),
                            .max_bytes_in_flight = offload_bytes_in_flight(
                                settings, *plan.family, plan.rank, plan.pipeline.layout())},
                           plan.rank.device, context.warnings, out);
  if (state.model) {
    out << "using the model of the last start again ..." << std::endl;
  } else {
    state.model = build_model(plan, state.offload_store.get(), out);
  }
  freeze_parameters(*state.model, *settings.optimizer);
  state.weights =
      bind_weights(plan, *state.model,
                   settings.memory->offload.cpu_offloading_weights ? state.offload_store : nullptr,
                   context.communicators, out);
  if (!settings.training->skip_train) {
    state.optimizer =
        make_optimizer(*settings.optimizer, *state.weights, loss_scaling(*settings.training),
                       optimizer_offload(plan, context.warnings, out));
    state.scheduler = OptimizerParamScheduler(make_param_schedule(settings));
  }
  fill_weights(plan, state, context, out);
  state.batch = first_batch(plan, state.progress, out);
}

}  // namespace megatron
