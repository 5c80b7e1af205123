#include "layouts/layout_run.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <ostream>
#include <stdexcept>

#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "support/train_step.h"

namespace megatron::layouts {

std::vector<at::Tensor> local_weights(const ParamStore& weights) {
  std::vector<at::Tensor> copies;
  for (const Parameter* parameter : weights.parameters())
    copies.push_back(parameter->value().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
  return copies;
}

void add_part(const ParamStore& weights, const std::vector<at::Tensor>& local, Tensors& whole) {
  std::size_t index = 0;
  for (const Parameter* parameter : weights.parameters()) {
    const at::Tensor& value = local[index++];
    const Shape& shape = parameter->sharding().global_shape;
    const at::Tensor& tensor =
        whole.try_emplace(parameter->name(), at::zeros(shape, at::kDouble)).first->second;
    copy_slices(value, parameter->slices(), tensor);
  }
}

TrainStepResult make_step(Trainer& trainer, StepListener* listener) {
  trainer.state.batch = trainer.plan.batches.at(trainer.state.progress.consumed_train_samples);
  const TrainStepContext parts{
      *trainer.state.model, *trainer.state.weights, *trainer.state.optimizer, *trainer.data.train,
      trainer.timers,       trainer.plan.rank,      trainer.plan.pipeline,    listener};
  TrainStepResult step = train_step(
      parts, {.iteration = trainer.state.progress.iteration + 1,
              .num_microbatches = trainer.state.batch.num_microbatches,
              .first_ordinal = trainer.state.progress.consumed_train_samples,
              .calculate_per_token_loss = trainer.plan.settings.training->calculate_per_token_loss,
              .update = {.lr = trainer.state.scheduler.lr(),
                         .weight_decay = trainer.state.scheduler.weight_decay()}});
  trainer.state.scheduler.step(trainer.state.batch.running_batch_size);
  ++trainer.state.progress.iteration;
  trainer.state.progress.consumed_train_samples += trainer.state.batch.running_batch_size;
  return step;
}

TrainingResult train_in_layout(const std::vector<std::string>& flags, std::int64_t world_size,
                               const TrainingOptions& options) {
  const RunConfig run = read_run(flags, world_size);
  TrainingResult outcome;
  std::mutex mutex;
  run_rank_threads(world_size, [&](Communicators& communicators) {
    std::ostream silent(nullptr);
    Trainer trainer = set_up(run, silent,
                             {.communicators = &communicators,
                              .cpus = {.count = 1 << 20},
                              .params_dtype = options.dtype});
    const auto keep = [&](Tensors& whole) {
      const std::vector<at::Tensor> local = local_weights(*trainer.state.weights);
      const std::scoped_lock lock(mutex);
      add_part(*trainer.state.weights, local, whole);
    };
    if (options.prepare) options.prepare(*trainer.state.weights);
    keep(outcome.before);
    for (std::int64_t i = 0; i < trainer.plan.settings.training->train_iters; ++i) {
      const TrainStepResult step = make_step(trainer);
      if (communicators.rank() != 0) continue;
      outcome.loss_names.clear();
      for (const LossTotal& loss : step.losses) {
        outcome.loss_names.push_back(loss.name);
        outcome.losses.push_back(loss.mean());
      }
      outcome.grad_norms.push_back(step.update.grad_norm);
      outcome.routing.push_back(step.routing);
    }
    keep(outcome.after);
  });
  return outcome;
}

std::vector<std::string> flags_of(const Case& one, const std::vector<std::string>& more) {
  Flags all = one.layout.flags();
  all.insert(all.end(), more.begin(), more.end());
  return families()[one.family].run_flags(all);
}

TrainingResult train_case(const Case& one, const std::vector<std::string>& more) {
  try {
    return train_in_layout(flags_of(one, more), one.layout.world_size());
  } catch (const std::exception& error) {
    throw std::runtime_error(families()[one.family].name + ", " + one.layout.text() + ": " +
                             error.what());
  }
}

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  const double scale = b.abs().max().item<double>();
  return (a - b).abs().max().item<double>() / (scale > 0 ? scale : 1);
}

double gradient_distance(const TrainingResult& rounded, const TrainingResult& exact) {
  double squares = 0;
  for (const auto& [name, after] : exact.after) {
    const at::Tensor gradient = exact.before.at(name) - after;
    const at::Tensor difference = rounded.before.at(name) - rounded.after.at(name) - gradient;
    const double size = gradient.square().sum().item<double>(),
                 error = difference.square().sum().item<double>();
    if (size > 0 || error > 0) squares += error / size;  // a frozen weight has neither
  }
  return std::sqrt(squares / static_cast<double>(exact.after.size()));
}

double curve_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return most;
}

void expect_gradients(const TrainingResult& actual, const TrainingResult& expected, double limit) {
  ASSERT_EQ(actual.after.size(), expected.after.size());
  for (const auto& [name, after] : expected.after) {
    ASSERT_TRUE(actual.after.contains(name)) << name;
    EXPECT_TRUE(actual.before.at(name).equal(expected.before.at(name)))
        << name << " is drawn otherwise";
    if (name == "multichoice_head.bias") continue;  // in all scores alike: its gradient is rounding
    EXPECT_LE(relative_distance(actual.before.at(name) - actual.after.at(name),
                                expected.before.at(name) - after),
              limit)
        << "gradient of " << name;
  }
}

}  // namespace megatron::layouts
