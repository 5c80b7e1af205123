#include "megatron/training/observability/per_layer_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

double ratio(double update, double weight) { return weight > 0 ? update / weight : 0; }

struct LayerRow {
  std::string layer;
  double weight = 0, gradient = 0, update = 0;  ///< sums of squares
  bool has_parameters = false;
};

/// Returns the units of the model that have parameters.
std::vector<LayerRow> rows(const PerLayerNorms& table, const std::vector<ModelUnit>& units) {
  std::vector<LayerRow> result;
  for (const ModelUnit& unit : units) result.push_back({.layer = unit.path});
  for (const ParameterNorms& norms : table.parameters) {
    const ModelUnit* unit = find_unit(units, norms.name);
    if (unit == nullptr) continue;
    LayerRow& row = result[static_cast<std::size_t>(unit - units.data())];
    row.weight += norms.weight * norms.weight;
    row.gradient += norms.gradient * norms.gradient;
    row.update += norms.update * norms.update;
    row.has_parameters = true;
  }
  std::erase_if(result, [](const LayerRow& row) { return !row.has_parameters; });
  return result;
}

}  // namespace

PerLayerNormRecorder::PerLayerNormRecorder(Model& model, ParamStore& weights, Optimizer& optimizer)
    : weights_(weights), optimizer_(optimizer) {
  hooks_.emplace(model, static_cast<UnitHooks&>(*this));
}

void PerLayerNormRecorder::after_forward(const Module& unit, const at::Tensor& output) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm =
      at::linalg_vector_norm(output.detach(), 2, std::nullopt, false, at::kDouble);
  mean_squares_[unit.path()] =
      norm * norm / static_cast<double>(std::max<std::int64_t>(1, output.numel()));
}

void PerLayerNormRecorder::after_backward() {
  const at::NoGradGuard no_grad;
  hooks_.reset();
  const double scale = optimizer_.loss_scale().item<double>();
  MainParameters& main = optimizer_.main_parameters();
  for (std::size_t i = 0; i < main.pieces().size(); ++i)
    weights_before_.push_back(main.read(i).clone());
  const std::vector<double> weights = parameter_norms(main.sums(), weights_, weights_before_);
  const std::vector<double> gradients =
      parameter_norms(main.sums(), weights_, piece_gradients(weights_));
  for (std::size_t i = 0; i < weights.size(); ++i)
    norms_.parameters.push_back(
        {.name = main.sums().names()[i], .weight = weights[i], .gradient = gradients[i] / scale});
}

PerLayerNorms PerLayerNormRecorder::after_update() {
  const at::NoGradGuard no_grad;
  MainParameters& main = optimizer_.main_parameters();
  std::vector<at::Tensor> changes;
  for (std::size_t i = 0; i < weights_before_.size(); ++i)
    changes.push_back(main.read(i).to(at::kDouble) - weights_before_[i].to(at::kDouble));
  const std::vector<double> updates = parameter_norms(main.sums(), weights_, changes);
  for (std::size_t i = 0; i < updates.size(); ++i) norms_.parameters[i].update = updates[i];
  reduce_activation_rms();
  return std::move(norms_);
}

/// Averages the ranks' mean squares per unit. Each rank of an axis has the same number of elements
/// of a unit, so the mean of the means is the global mean.
void PerLayerNormRecorder::reduce_activation_rms() {
  const Axis& model = weights_.model_axis();
  std::vector<std::string> mine;
  for (const auto& [unit, mean_square] : mean_squares_) mine.push_back(unit);
  const std::vector<std::string> units = all_gather_unique_names({model, weights_.device()}, mine);
  const at::Tensor sums =
      at::zeros({2, static_cast<std::int64_t>(units.size())},
                at::TensorOptions().dtype(at::kDouble).device(weights_.device()));
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto found = mean_squares_.find(units[i]);
    if (found == mean_squares_.end()) continue;
    const auto column = static_cast<std::int64_t>(i);
    sums[0][column].copy_(found->second);
    sums[1][column].fill_(1);
  }
  all_reduce_(weights_.data_parallel().all, sums, "layer norms");
  all_reduce_(model, sums, "layer norms");
  const at::Tensor host = (sums[0] / sums[1]).cpu();
  for (std::size_t i = 0; i < units.size(); ++i)
    norms_.activation_rms[units[i]] = std::sqrt(host.const_data_ptr<double>()[i]);
}

std::string per_layer_norms_text(const PerLayerNorms& table, const std::vector<ModelUnit>& units,
                                 std::int64_t iteration) {
  std::size_t width = 5;
  const std::vector<LayerRow> all = rows(table, units);
  for (const LayerRow& row : all) width = std::max(width, row.layer.size());
  const int columns = static_cast<int>(width);
  std::string text = format(" layer norms at iteration %lld\n  %-*s %12s %12s %12s %12s\n",
                            static_cast<long long>(iteration), columns, "layer", "weight",
                            "gradient", "update/w", "activation");
  for (const LayerRow& row : all) {
    const auto activation = table.activation_rms.find(row.layer);
    text +=
        format("  %-*s %12.4e %12.4e %12.4e ", columns, row.layer.c_str(), std::sqrt(row.weight),
               std::sqrt(row.gradient), ratio(std::sqrt(row.update), std::sqrt(row.weight)));
    text += activation == table.activation_rms.end() ? format("%12s\n", "-")
                                                     : format("%12.4e\n", activation->second);
  }
  return text;
}

JsonText per_layer_norms_json(const PerLayerNorms& table) {
  JsonText parameters = JsonText::object(), activations = JsonText::object();
  for (const ParameterNorms& norms : table.parameters)
    parameters[norms.name] = {{"weight", norms.weight},
                              {"gradient", norms.gradient},
                              {"update_ratio", ratio(norms.update, norms.weight)}};
  for (const auto& [layer, rms] : table.activation_rms) activations[layer] = rms;
  return {{"parameters", parameters}, {"activation_rms", activations}};
}

}  // namespace megatron
