// Runs a training in a layout, with every rank a thread of this process, and returns the results in
// terms of the whole model.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layouts/layout.h"
#include "megatron/config/run_settings.h"
#include "megatron/optimizer/param_scheduler.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/training/layout_check/tensor_difference.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/step/train_step.h"

namespace megatron::layouts {

using Tensors = std::map<std::string, at::Tensor>;

struct TrainingResult {
  std::vector<std::string> loss_names;  ///< of the losses of a step
  std::vector<double> losses;           ///< of each step in turn, in the order of their names
  std::vector<double> grad_norms;       ///< one value per step
  /// What the routers did, for each step.
  std::vector<std::vector<LayerRouting>> routing;
  /// The whole weights in float64, before the first step and after the last.
  Tensors before, after;
};

/// Returns copies of this rank's weights in canonical order. Collective when weights are sharded.
std::vector<at::Tensor> local_weights(const ParamStore& weights);

/// Copies this rank's part of every weight to its place in the whole weights.
void add_part(const ParamStore& weights, const std::vector<at::Tensor>& local, Tensors& whole);

/// Runs the next step of a trainer as the training loop does.
TrainStepResult make_step(Trainer& trainer, StepListener* listener = nullptr);

struct TrainingOptions {
  std::optional<c10::ScalarType> dtype = {};      ///< of the weights; nullopt: that of the flags
  std::function<void(ParamStore&)> prepare = {};  ///< changes the initial weights
};

/// Trains for --train-iters steps.
TrainingResult train_in_layout(const std::vector<std::string>& flags, std::int64_t world_size,
                               const TrainingOptions& options = {});

/// Returns the flags of a case, followed by `more`.
std::vector<std::string> flags_of(const Case& one, const std::vector<std::string>& more);

TrainingResult train_case(const Case& one, const std::vector<std::string>& more);

/// Returns max |a − b| / max |b|.
double relative_distance(const at::Tensor& a, const at::Tensor& b);

/// Returns the distance of a bf16 step's gradients from those of the float32 step: the root mean
/// square over tensors of ‖difference‖ / ‖gradient‖.
double gradient_distance(const TrainingResult& rounded, const TrainingResult& exact);

/// Returns the largest relative distance between points of two curves.
double curve_distance(const std::vector<double>& a, const std::vector<double>& b);

/// Expects the weights of `expected` at the start, and its gradients within `limit` (W − W' =
/// lr·gradient).
void expect_gradients(const TrainingResult& actual, const TrainingResult& expected, double limit);

}  // namespace megatron::layouts
