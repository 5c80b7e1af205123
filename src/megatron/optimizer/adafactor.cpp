#include "megatron/optimizer/adafactor.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cstddef>

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

/// The members of StepScalars as scalar tensors on their device.
class Scalars {
 public:
  Scalars(const kernels::StepScalars* scalars, c10::Device device)
      : all_(at::from_blob(
            const_cast<kernels::StepScalars*>(scalars),
            {static_cast<std::int64_t>(sizeof(kernels::StepScalars) / sizeof(double))},
            at::TensorOptions().dtype(at::kDouble).device(device))) {}

  at::Tensor at_offset(std::size_t bytes) const {
    return all_[static_cast<std::int64_t>(bytes / sizeof(double))];
  }

 private:
  at::Tensor all_;
};

/// One kind of state of one parameter. Its layout is that of the parameter without a dimension.
struct Statistic {
  std::string name;
  std::unique_ptr<Parameter> layout;  ///< has the parameter's name, and no storage
  ParameterPiece piece;
  at::Tensor values;  ///< in the local shape
};

/// Returns the sharding of sums over dimension `dim` of a tensor.
Sharding without_dim(Sharding sharding, int dim) {
  sharding.global_shape.erase(sharding.global_shape.begin() + dim);
  for (AxisSplit& split : sharding.splits) {
    if (split.dim == dim)
      split = AxisSplit{};
    else if (split.dim > dim)
      --split.dim;
  }
  return sharding;
}

/// A parameter with its states and what sums over the whole of it need.
struct Updated {
  const ParameterPiece* piece = nullptr;
  at::Tensor main, grad;  ///< in the local shape
  bool rounds_weight = false, is_decayed = false;
  std::size_t group = 0;
  /// 1 for what this rank counts, 0 for padding and for rows that a lower rank counts: [rows, 1],
  /// or [elements] for a vector. Undefined when it counts everything.
  at::Tensor counted;
  std::vector<Axis> row_axes, column_axes, other_axes;  ///< that divide the parameter
  std::vector<Statistic> statistics;

  const Sharding& sharding() const { return piece->parameter->sharding(); }
  bool is_factored() const { return sharding().global_shape.size() >= 2; }
  std::int64_t global_extent(int from_end) const {
    return sharding()
        .global_shape[sharding().global_shape.size() - static_cast<std::size_t>(from_end)];
  }
  at::Tensor statistic(const std::string& name) const {
    for (const Statistic& statistic : statistics)
      if (statistic.name == name) return statistic.values;
    MEGATRON_CHECK(false, "no state ", name);
    return {};
  }
};

at::Tensor sum_over(at::Tensor values, const std::vector<Axis>& axes) {
  for (const Axis& axis : axes) axis.comm->all_reduce(values, "means of Adafactor");
  return values;
}

/// Returns Updated::counted.
at::Tensor counted_rows(const Parameter& parameter, const at::Tensor& like) {
  Sharding divided{.global_shape = parameter.sharding().global_shape, .splits = {}};
  std::vector<Axis> axes;
  for (std::size_t s = 0; s < parameter.axes().size(); ++s) {
    if (parameter.sharding().splits[s].dim < 0) continue;
    divided.splits.push_back(parameter.sharding().splits[s]);
    axes.push_back(parameter.axes()[s]);
  }
  const Shape local = parameter.local_shape();
  std::int64_t counted = 0;
  const std::vector<TensorSlice> owned = divided.owned_slices(axes);
  for (const TensorSlice& slice : owned) counted += num_elements(slice.shape);
  if (counted == num_elements(local)) return {};
  MEGATRON_CHECK(local.size() <= 2, parameter.name(), ": a part of a tensor is counted elsewhere");
  at::Tensor rows = at::zeros({local[0]}, like.options());
  for (const TensorSlice& slice : owned)
    rows.narrow(0, slice.local_offset[0], slice.shape[0]).fill_(1);
  return local.size() == 1 ? rows : rows.unsqueeze(-1);
}

class Adafactor final : public UpdateRule {
 public:
  Adafactor(const OptimizerConfig& config, const ParamStore& store, const MainParameters& main,
            ParameterSelector selects)
      : config_(config), store_(store), main_(main), selects_(std::move(selects)) {
    for (std::size_t i = 0; i < store.pieces().size(); ++i) {
      if (selects_(*store.pieces()[i].parameter)) updated_.push_back(make(i));
    }
  }

  bool updates(const Parameter& parameter) const override { return selects_(parameter); }
  std::vector<OptimizerState>& states() override { return no_states_; }

  std::vector<std::string> state_names(const Parameter& parameter) override {
    std::vector<std::string> names{"exp_avg_sq"};
    if (parameter.sharding().global_shape.size() >= 2) names = {"exp_avg_sq_row", "exp_avg_sq_col"};
    if (config_.adafactor_beta1) names.push_back("exp_avg");
    return names;
  }
  void visit_state(const OptimizerState::Visitor& visitor) override {
    for (const Updated& updated : updated_) {
      for (const Statistic& statistic : updated.statistics) {
        at::Tensor flat = statistic.values.view({-1});
        visitor(statistic.piece, statistic.name, flat);
      }
    }
  }
  void list_state(const OptimizerState::Lister& lister) override {
    for (const Updated& updated : updated_) {
      for (const Statistic& statistic : updated.statistics)
        lister(statistic.piece, statistic.name, statistic.values.scalar_type(),
               [flat = statistic.values.view({-1})] { return flat; });
    }
  }
  std::int64_t num_state_bytes() override {
    std::int64_t bytes = 0;
    for (const Updated& updated : updated_) {
      for (const Statistic& statistic : updated.statistics)
        bytes += static_cast<std::int64_t>(statistic.values.nbytes());
    }
    return bytes;
  }

  void update(const kernels::StepScalars* scalars) override {
    const at::NoGradGuard no_grad;
    if (store_.device().is_cpu() && scalars->applied == 0) return;
    const Scalars step(scalars, store_.device());
    for (const Updated& updated : updated_) update(updated, step);
  }

 private:
  Updated make(std::size_t index) const {
    const ParameterPiece& piece = store_.pieces()[index];
    const Parameter& parameter = *piece.parameter;
    const ParamBucket& bucket = store_.buckets()[piece.bucket];
    const Shape local = parameter.local_shape();
    MEGATRON_CHECK(piece.count == num_elements(local), parameter.name(),
                   " is divided between the ranks of a distributed optimizer");
    const ParameterTags& tags = parameter.spec().tags;
    Updated updated{.piece = &piece,
                    .main = main_.tensors()[index].view(local),
                    .grad = piece.of_own(bucket.own_grad, bucket).view(local),
                    .rounds_weight = main_.has_fp32_copies() &&
                                     !(bucket.is_precise && bucket.gathers_after_update()),
                    .is_decayed = tags.qk_norm ? config_.apply_wd_to_qk_layernorm : !tags.no_decay,
                    .group = tags.embedding ? std::size_t{1} : std::size_t{0},
                    .counted = {},
                    .row_axes = {},
                    .column_axes = {},
                    .other_axes = {},
                    .statistics = {}};
    updated.counted = counted_rows(parameter, updated.main);
    add_axes(updated);
    add_statistics(updated);
    return updated;
  }

  static void add_axes(Updated& updated) {
    const Parameter& parameter = *updated.piece->parameter;
    const int num_dims = static_cast<int>(updated.sharding().global_shape.size());
    for (std::size_t s = 0; s < parameter.axes().size(); ++s) {
      const int dim = updated.sharding().splits[s].dim;
      if (dim < 0 || parameter.axes()[s].size == 1) continue;
      auto& axes = dim == num_dims - 1   ? updated.column_axes
                   : dim == num_dims - 2 ? updated.row_axes
                                         : updated.other_axes;
      axes.push_back(parameter.axes()[s]);
    }
  }

  void add_statistics(Updated& updated) const {
    const int num_dims = static_cast<int>(updated.sharding().global_shape.size());
    const auto add = [&](const char* name, Sharding sharding) {
      const Parameter& parameter = *updated.piece->parameter;
      ParameterSpec spec = parameter.spec();
      spec.sharding = std::move(sharding);
      auto layout = std::make_unique<Parameter>(parameter.name(), spec, parameter.axes());
      const at::Tensor values = at::zeros(layout->local_shape(), updated.main.options());
      const ParameterPiece piece{.parameter = layout.get(),
                                 .first = 0,
                                 .count = values.numel(),
                                 .bucket = updated.piece->bucket,
                                 .offset = updated.piece->offset};
      updated.statistics.push_back(
          {.name = name, .layout = std::move(layout), .piece = piece, .values = values});
    };
    if (updated.is_factored()) {
      add("exp_avg_sq_row", without_dim(updated.sharding(), num_dims - 1));
      add("exp_avg_sq_col", without_dim(updated.sharding(), num_dims - 2));
    } else {
      add("exp_avg_sq", updated.sharding());
    }
    if (config_.adafactor_beta1) add("exp_avg", updated.sharding());
  }

  /// Returns the root mean square of a tensor in the layout of the parameter.
  static at::Tensor rms(const Updated& updated, const at::Tensor& values) {
    const at::Tensor squares = values * values;
    at::Tensor sum =
        (updated.counted.defined() ? squares * updated.counted : squares).sum(at::kDouble);
    for (const auto* axes : {&updated.row_axes, &updated.column_axes, &updated.other_axes})
      sum = sum_over(sum, *axes);
    return (sum / static_cast<double>(num_elements(updated.sharding().global_shape))).sqrt();
  }

  /// Replaces `to` unless the step is left out.
  static void assign(const at::Tensor& to, const at::Tensor& value, const at::Tensor& applied) {
    at::Tensor(to).copy_(to.is_cpu() ? value : at::where(applied.ne(0), value.to(to.dtype()), to));
  }

  /// Updates the second moments and returns the gradient divided by their root.
  at::Tensor normalized(const Updated& updated, const at::Tensor& grad, const at::Tensor& decay,
                        const at::Tensor& applied) const {
    const at::Tensor squares = grad * grad + config_.adafactor_eps1;
    const auto moved = [&](const char* name, const at::Tensor& mean) {
      const at::Tensor statistic = updated.statistic(name);
      assign(statistic, statistic * decay + mean * (1 - decay), applied);
      return statistic;
    };
    if (!updated.is_factored()) return moved("exp_avg_sq", squares).rsqrt() * grad;
    const auto rows = static_cast<double>(updated.global_extent(2)),
               columns = static_cast<double>(updated.global_extent(1));
    const at::Tensor counted_squares =
        updated.counted.defined() ? squares * updated.counted : squares;
    const at::Tensor row =
        moved("exp_avg_sq_row",
              sum_over(squares.sum({-1}, false, at::kDouble), updated.column_axes) / columns);
    const at::Tensor column =
        moved("exp_avg_sq_col",
              sum_over(counted_squares.sum({-2}, false, at::kDouble), updated.row_axes) / rows);
    const at::Tensor counted_row =
        updated.counted.defined() ? row * updated.counted.squeeze(-1) : row;
    const at::Tensor mean =
        sum_over(counted_row.sum({-1}, true, at::kDouble), updated.row_axes) / rows;
    return (row / mean.to(row.dtype())).rsqrt().unsqueeze(-1) * column.rsqrt().unsqueeze(-2) * grad;
  }

  void update(const Updated& updated, const Scalars& step) const {
    using S = kernels::StepScalars;
    const at::Tensor applied = step.at_offset(offsetof(S, applied));
    const at::Tensor decay =
        1 - step.at_offset(offsetof(S, num_steps)).pow(config_.adafactor_decay_rate);
    const at::Tensor grad = updated.grad.to(updated.main.dtype()) *
                            step.at_offset(offsetof(S, grad_scale)).to(updated.main.dtype());
    at::Tensor change = normalized(updated, grad, decay, applied);
    at::Tensor lr = step.at_offset(offsetof(S, lr) + updated.group * sizeof(double)) *
                    updated.piece->parameter->spec().tags.learning_rate_factor;
    if (config_.adafactor_scale_parameter)
      lr = lr * rms(updated, updated.main).clamp_min(config_.adafactor_eps2);
    change = change * (lr / (rms(updated, change) / config_.adafactor_clip_threshold).clamp_min(1));
    if (config_.adafactor_beta1) {
      const at::Tensor average = updated.statistic("exp_avg");
      const double beta1 = *config_.adafactor_beta1;
      assign(average, average * beta1 + change * (1 - beta1), applied);
      change = average;
    }
    at::Tensor weights = updated.main;
    if (updated.is_decayed)
      weights = weights - weights * (step.at_offset(offsetof(S, weight_decay)) * lr);
    assign(updated.main, weights - change, applied);
    if (updated.rounds_weight) round_weight(updated);
  }

  void round_weight(const Updated& updated) const {
    const ParameterPiece& piece = *updated.piece;
    const ParamBucket& bucket = store_.buckets()[piece.bucket];
    main_.open_model_values(piece.bucket);
    piece.of_own(bucket.own_value, bucket).copy_(updated.main.view({-1}));
    main_.close_model_values(piece.bucket);
  }

  const OptimizerConfig config_;
  const ParamStore& store_;
  const MainParameters& main_;
  const ParameterSelector selects_;
  std::vector<Updated> updated_;
  std::vector<OptimizerState> no_states_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adafactor(const OptimizerConfig& config, const ParamStore& store,
                                           const MainParameters& main, ParameterSelector selects) {
  return std::make_unique<Adafactor>(config, store, main, std::move(selects));
}

}  // namespace megatron
