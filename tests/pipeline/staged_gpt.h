// Runs a step of a GPT in stages on rank threads, and the same step without a pipeline, and returns
// both in terms of the whole model.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megatron/config/pipeline_layout.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/pipeline/overlapped_pair.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate.h"
#include "support/global_tensor.h"
#include "support/gpt_model.h"
#include "support/tiny_gpt.h"

namespace megatron {

struct TransformerConfig;

/// Splits `num_layers` evenly over the ranks' chunks; the first stages get the remainder.
inline PipelineLayout even_layout(const std::string& schedule, std::int64_t num_ranks,
                                  std::int64_t num_chunks, std::int64_t num_layers) {
  PipelineLayout layout{.num_ranks = num_ranks,
                        .num_chunks = num_chunks,
                        .order = chunk_order_of(schedule),
                        .stages = {}};
  const std::int64_t num_stages = num_ranks * num_chunks;
  for (std::int64_t i = 0, first = 0; i < num_stages; ++i) {
    const std::int64_t count = num_layers / num_stages + (i < num_layers % num_stages ? 1 : 0);
    layout.stages.push_back({.first_layer = first,
                             .num_layers = count,
                             .has_embedding = i == 0,
                             .has_output = i == num_stages - 1});
    first += count;
  }
  return layout;
}

/// Returns the step's microbatches, each with samples of its own.
inline std::vector<Microbatch> numbered_batches(std::int64_t count, std::int64_t vocab_size) {
  std::vector<Microbatch> batch;
  for (std::int64_t i = 0; i < count; ++i) {
    batch.push_back(patterned_batch(2, 8, vocab_size));
    batch.back().sample_ordinals = at::arange(2) + 2 * i;
    batch.back().tensors["tokens"] = (batch.back().at("tokens") + i) % vocab_size;
  }
  return batch;
}

struct StagedRun {
  PipelineLayout layout = {};
  std::string schedule = "1f1b";
  std::int64_t microbatch_group = 0;
  bool messages_ahead = true;
  bool training = true;  ///< false: forward only.
  c10::ScalarType dtype = c10::kFloat;
  std::int64_t num_tensor_ranks = 1;
  bool sequence_parallel = false, takes_turns = false;
  std::function<std::unique_ptr<UnitHooks>(const Rank& rank)> hooks_of = {};
  std::function<StepListener*(const Rank& rank)> listener_of = {};
  std::function<std::shared_ptr<Comm>(std::shared_ptr<Comm> comm)> pipeline_comm_of = {};

  Schedule make(std::int64_t num_microbatches) const {
    const ScheduleRequest request{schedule, layout.num_ranks, layout.num_chunks, num_microbatches,
                                  microbatch_group};
    const Schedule made = with_messages(
        training ? make_schedule(request) : make_forward_schedule(request), messages_ahead);
    EXPECT_EQ(validate_schedule(made, training), std::nullopt);
    return made;
  }
};

struct StepOutcome {
  std::vector<at::Tensor> losses;  ///< Sum of the loss per microbatch.
  std::map<std::string, at::Tensor> gradients;
};

/// Returns the scalar that backward starts from: the mean over the microbatch's tokens and over the
/// microbatches.
inline at::Tensor scale_of(const StepOutput& output, std::size_t num_microbatches) {
  return (output.count * static_cast<double>(num_microbatches))
      .reciprocal()
      .to(output.root.scalar_type());
}

inline ParamStore::Options store_options(const StagedRun& run) {
  return {.dtype = run.dtype,
          .grad_dtype = run.dtype == c10::kBFloat16 ? std::optional(c10::kFloat) : std::nullopt,
          .with_gradients = run.training};
}

/// Runs the whole model on one rank, one microbatch after the other.
inline StepOutcome run_whole(const TransformerConfig& config, const std::vector<Microbatch>& batch,
                             const StagedRun& run) {
  StepOutcome outcome;
  const auto model = make_gpt_model(config, Rank{}, 8);
  ParamStore store(declared_parameters(*model), store_options(run));
  store.initialize(3);
  disturb(store, 0.1);
  store.zero_gradients();
  for (const Microbatch& microbatch : batch) {
    const at::AutoGradMode mode(run.training);
    const StepOutput output = model->forward_step(microbatch, run.training);
    outcome.losses.push_back(output.root.detach());
    if (run.training) output.root.backward(scale_of(output, batch.size()));
  }
  if (!run.training) return outcome;
  store.finalize_gradients();
  GlobalTensors gradients;
  for (const Parameter* parameter : store.parameters())
    gradients.put(*parameter, parameter->grad());
  outcome.gradients = gradients.take();
  return outcome;
}

/// Returns a rank on the axes tp and pp, tp first.
inline Rank staged_rank(const StagedRun& run, Communicators& communicators) {
  Rank rank;
  const std::int64_t tp = run.num_tensor_ranks;
  rank.index = communicators.rank();
  std::vector<std::int64_t> row, column;
  for (std::int64_t i = 0; i < tp; ++i) row.push_back(rank.index / tp * tp + i);
  for (std::int64_t i = 0; i < run.layout.num_ranks; ++i)
    column.push_back(rank.index % tp + i * tp);
  rank.tp = {
      .name = "tp", .rank = rank.index % tp, .size = tp, .comm = communicators.group(row, "tp")};
  rank.pp = {.name = "pp",
             .rank = rank.index / tp,
             .size = run.layout.num_ranks,
             .comm = communicators.group(column, "pp")};
  rank.tp_cp = rank.tp;
  if (run.pipeline_comm_of) rank.pp.comm = run.pipeline_comm_of(rank.pp.comm);
  rank.sequence_parallel = run.sequence_parallel;
  if (run.takes_turns) enable_overlap({&rank.tp, &rank.tp_cp, &rank.etp_ep}, rank.device);
  return rank;
}

/// Runs the step in stages on tp·pp rank threads. Checks that all copies of a weight get the same
/// gradients.
inline StepOutcome run_staged(const TransformerConfig& config, const std::vector<Microbatch>& batch,
                              const StagedRun& run) {
  StepOutcome outcome{std::vector<at::Tensor>(batch.size()), {}};
  const Schedule schedule = run.make(static_cast<std::int64_t>(batch.size()));
  GlobalTensors gradients;
  std::mutex mutex;
  const auto body = [&](Communicators& communicators) {
    const Rank rank = staged_rank(run, communicators);
    const auto model = make_gpt_model(
        config, rank,
        MakeModelOptions{.vocab_pad_multiple = 8, .dtype = run.dtype, .layout = &run.layout});
    ParamStore::Options options = store_options(run);
    options.pipeline = rank.pp;
    options.communicators = &communicators;
    ParamStore store(declared_parameters(*model), options);
    store.initialize(3);
    disturb(store, 0.1);
    const auto on_loss = [&](std::size_t microbatch, const StepOutput& output) {
      const std::lock_guard lock(mutex);
      outcome.losses[microbatch] = output.root.detach();
      return run.training ? scale_of(output, batch.size()) : at::Tensor();
    };
    const at::AutoGradMode mode(run.training);
    if (run.training) store.zero_gradients();
    const auto hooks = run.hooks_of ? run.hooks_of(rank) : std::make_unique<UnitHooks>();
    const UnitHooksScope hooked(*model, *hooks);
    run_schedule(schedule, {*model, store, rank.pp, overlapped_pair_of({&rank.tp, &rank.etp_ep})},
                 {.batch = batch,
                  .training = run.training,
                  .on_loss = on_loss,
                  .listener = run.listener_of ? run.listener_of(rank) : nullptr});
    if (!run.training) return;
    store.finalize_gradients();
    for (const Parameter* parameter : store.parameters())
      gradients.put(*parameter, parameter->grad());
  };
  run_rank_threads(run.layout.num_ranks * run.num_tensor_ranks, body,
                   {.timeout = std::chrono::seconds(20)});
  if (run.training) outcome.gradients = gradients.take();
  return outcome;
}

inline void expect_same_bits(const StepOutcome& a, const StepOutcome& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_TRUE(at::equal(a.losses[i], b.losses[i])) << "loss of microbatch " << i;
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : a.gradients)
    EXPECT_TRUE(at::equal(gradient, b.gradients.at(name))) << name;
}

}  // namespace megatron
