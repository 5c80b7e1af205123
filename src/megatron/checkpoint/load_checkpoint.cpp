// Loads a CheckpointSource into a model and an optimizer.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/open_weights.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/params/all_parameter_names.h"

namespace megatron {
namespace {

const char* kWithoutOptimizer = "add --no-load-optim, or --finetune";

void check_state(const Parameter& parameter, const std::string& name, const ManifestTensor& tensor,
                 const std::string& place) {
  if (tensor.shape == parameter.sharding().global_shape) return;
  throw UserError(
      {place + ": tensor '" + name + "' has another shape than its parameter",
       shape_text(tensor.shape) + ", expected " + shape_text(parameter.sharding().global_shape),
       kWithoutOptimizer});
}

/// Fills the main weights with the tensors that are named after their parameters and `prefix`.
void fill_main_parameters(WeightReader& reader, const std::string& prefix, MainParameters& main) {
  for (std::size_t i = 0; i < main.pieces().size(); ++i) {
    at::Tensor flat = main.read(i);
    fill_piece(reader, main.pieces()[i], prefix + main.pieces()[i].parameter->name(), flat);
    if (!main.tensors()[i].defined()) main.write(i, flat);
  }
}

/// Returns whether the checkpoint holds the float32 main weight of every trained parameter, as that
/// of a run in 16 bits does.
bool has_main_parameters(const CheckpointSource& source, const MainParameters& main) {
  const std::vector<std::string>& names = main.sums().names();
  return source.manifest && !names.empty() &&
         std::ranges::all_of(names, [&](const std::string& name) {
           return source.manifest->tensors.contains(kMainParameterPrefix + name);
         });
}

/// Returns the names of the tensors that a run restores besides weights, ascending: the states of
/// the optimizer and of layers, and main weights if the checkpoint has any. Collective over the
/// store's model axis.
std::vector<std::string> restored_states(const Manifest& manifest, Optimizer& optimizer) {
  const MainParameters& main = optimizer.main_parameters();
  std::vector<std::string> names = all_parameter_names(
      main.store(),
      [](const Parameter& parameter) { return parameter.spec().kind == ParameterKind::state; });
  const std::vector<std::string>& states = optimizer.state_tensors();
  names.insert(names.end(), states.begin(), states.end());
  const auto first_main = manifest.tensors.lower_bound(kMainParameterPrefix);
  if (first_main != manifest.tensors.end() && first_main->first.starts_with(kMainParameterPrefix))
    for (const std::string& name : main.sums().names())
      names.push_back(kMainParameterPrefix + name);
  std::ranges::sort(names);
  return names;
}

/// Throws a UserError unless the checkpoint holds exactly what the run restores of the whole model
/// besides weights, which fill_store() compares. The result is the same on every rank.
void check_states(const Manifest& manifest, Optimizer& optimizer, const std::string& place) {
  const std::vector<std::string> restored = restored_states(manifest, optimizer);
  std::vector<std::string> missing, unexpected;
  for (const std::string& name : restored) {
    const auto found = manifest.tensors.find(name);
    if (found == manifest.tensors.end() || found->second.kind == TensorKind::weight)
      missing.push_back(name);
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    if (tensor.kind != TensorKind::weight && !std::ranges::binary_search(restored, name))
      unexpected.push_back(name);
  }
  require_same_names(
      place + ": its states are not those that this run restores (optimizer " +
          manifest.optimizer->name + ')',
      missing, unexpected,
      "train with the optimizer and the flags that saved it, or " + std::string(kWithoutOptimizer));
}

}  // namespace

std::unique_ptr<WeightReader> open_weights(const CheckpointSource& source) {
  if (source.kind == CheckpointSource::Kind::hugging_face)
    return std::make_unique<HfReader>(source.folder);
  return std::make_unique<ManifestReader>(source.folder, source.manifest);
}

void load_weights(const CheckpointSource& source, ParamStore& store) {
  fill_store(*open_weights(source), source.folder.string(), store);
}

void load_weights(const CheckpointSource& source, ParamStore& store, MainParameters& main) {
  const auto reader = open_weights(source);
  fill_store(*reader, source.folder.string(), store);
  main.copy_model_params_to_main_params();
  if (has_main_parameters(source, main)) {
    for (const Parameter* parameter : store.parameters()) {
      const std::string name = kMainParameterPrefix + parameter->name();
      if (parameter->is_trained())
        check_state(*parameter, name, source.manifest->tensors.at(name), source.folder.string());
    }
    fill_main_parameters(*reader, kMainParameterPrefix, main);
  } else if (main.has_fp32_copies()) {
    fill_main_parameters(*reader, "", main);
  }
  main.copy_main_params_to_model_params();
}

void load_optimizer(const CheckpointSource& source, Optimizer& optimizer) {
  const std::string place = source.folder.string();
  if (!source.manifest || !source.manifest->optimizer)
    throw UserError({place + ": holds no optimizer state",
                     source.manifest ? "it was saved with --no-save-optim" : "",
                     kWithoutOptimizer});
  const Manifest& manifest = *source.manifest;
  check_states(manifest, optimizer, place);
  ManifestReader reader(source.folder, source.manifest);
  optimizer.visit_state(
      [&](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
        const std::string name = state + "." + piece.parameter->name();
        check_state(*piece.parameter, name, manifest.tensors.at(name), place);
        fill_piece(reader, piece, name, flat);
      });
  optimizer.set_num_steps(manifest.optimizer->num_steps);
  if (manifest.optimizer->loss_scale)
    optimizer.set_loss_scale_state(*manifest.optimizer->loss_scale);
}

}  // namespace megatron
