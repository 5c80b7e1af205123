// Loads a CheckpointSource into a model and an optimizer.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/params/param_store.h"

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

/// Returns whether no state of a parameter is expected, because it was not trained.
bool was_frozen(const Manifest& manifest, const std::string& parameter) {
  const auto found = manifest.tensors.find(parameter);
  return found != manifest.tensors.end() && found->second.is_frozen;
}

/// Returns the ranks that hold the same part of what the optimizer keeps for a piece.
const Axis& holders_of(const ParamStore& store, const ParameterPiece& piece) {
  const ParamBucket& bucket = store.buckets()[piece.bucket];
  return bucket.holders(bucket.is_sharded());
}

/// Returns the parameter that a state <state>.<parameter> belongs to.
std::string parameter_of(const std::string& state) { return state.substr(state.find('.') + 1); }

/// Fills the main weights from those of the manifest, which may be null, else from the weights.
void fill_main_parameters(WeightReader& reader, const Manifest* manifest, MainParameters& main) {
  for (std::size_t i = 0; i < main.pieces().size(); ++i) {
    at::Tensor flat = main.read(i);
    const std::string& name = main.pieces()[i].parameter->name();
    const bool is_stored =
        manifest != nullptr && manifest->tensors.contains(kMainParameterPrefix + name);
    if (!is_stored && !has_weight_of(reader, *main.pieces()[i].parameter)) continue;  // a new head
    fill_piece(reader, main.pieces()[i], is_stored ? kMainParameterPrefix + name : name, flat,
               holders_of(main.store(), main.pieces()[i]));
    if (!main.tensors()[i].defined()) main.write(i, flat);
  }
}

/// Returns whether the checkpoint holds float32 main weights, as that of a run in 16 bits does: of
/// every trained parameter that was trained.
bool has_main_parameters(const CheckpointSource& source, const MainParameters& main) {
  if (!source.manifest) return false;
  bool has_any = false;
  for (const std::string& name : main.sums().names()) {
    const bool is_stored = source.manifest->tensors.contains(kMainParameterPrefix + name);
    if (!is_stored && !was_frozen(*source.manifest, name)) return false;
    has_any = has_any || is_stored;
  }
  return has_any;
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
/// besides weights, which fill_store() compares. It may lack states of parameters that were frozen,
/// and hold states of those that are frozen now. Returns the parameters whose state in the
/// optimizer it lacks. The result is the same on every rank.
std::set<std::string> check_states(const Manifest& manifest, Optimizer& optimizer,
                                   const std::string& place) {
  const std::vector<std::string> restored = restored_states(manifest, optimizer),
                                 &trained = optimizer.main_parameters().sums().names();
  std::vector<std::string> missing, unexpected;
  std::set<std::string> fresh;
  for (const std::string& name : restored) {
    const auto found = manifest.tensors.find(name);
    if (found != manifest.tensors.end() && found->second.kind != TensorKind::weight) continue;
    const std::string parameter = parameter_of(name);
    if (!was_frozen(manifest, parameter))
      missing.push_back(name);
    else if (!name.starts_with(kMainParameterPrefix))
      fresh.insert(parameter);
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    if (tensor.kind == TensorKind::weight || std::ranges::binary_search(restored, name)) continue;
    const auto weight = manifest.tensors.find(parameter_of(name));
    const bool is_frozen = weight != manifest.tensors.end() &&
                           weight->second.kind == TensorKind::weight &&
                           !std::ranges::binary_search(trained, weight->first);
    if (!is_frozen) unexpected.push_back(name);
  }
  require_same_names(
      place + ": its states are not those that this run restores (optimizer " +
          manifest.optimizer->name + ')',
      missing, unexpected,
      "train with the optimizer and the flags that saved it, or " + std::string(kWithoutOptimizer));
  return fresh;
}

}  // namespace

std::unique_ptr<WeightReader> open_weights(const CheckpointSource& source) {
  if (source.kind == CheckpointSource::Kind::hugging_face)
    return std::make_unique<HfReader>(source.folder);
  return std::make_unique<ManifestReader>(source.folder, source.manifest);
}

void load_weights(const CheckpointSource& source, ParamStore& store) {
  fill_store(*open_weights(source), source.folder.string(), store, source.replaces_heads);
}

void load_weights(const CheckpointSource& source, ParamStore& store, MainParameters& main) {
  const auto reader = open_weights(source);
  fill_store(*reader, source.folder.string(), store, source.replaces_heads);
  main.copy_model_params_to_main_params();
  if (has_main_parameters(source, main)) {
    for (const Parameter* parameter : store.parameters()) {
      const auto found = source.manifest->tensors.find(kMainParameterPrefix + parameter->name());
      if (parameter->is_trained() && found != source.manifest->tensors.end())
        check_state(*parameter, found->first, found->second, source.folder.string());
    }
    fill_main_parameters(*reader, source.manifest.get(), main);
  } else if (main.has_fp32_copies()) {
    fill_main_parameters(*reader, nullptr, main);
  }
  main.copy_main_params_to_model_params();
}

std::set<std::string> load_optimizer(const CheckpointSource& source, Optimizer& optimizer) {
  const std::string place = source.folder.string();
  if (!source.manifest || !source.manifest->optimizer)
    throw UserError({place + ": holds no optimizer state",
                     source.manifest ? source.manifest->no_optimizer : "", kWithoutOptimizer});
  const Manifest& manifest = *source.manifest;
  std::set<std::string> fresh = check_states(manifest, optimizer, place);
  ManifestReader reader(source.folder, source.manifest);
  optimizer.visit_state([&](const ParameterPiece& piece, const std::string& state,
                            at::Tensor& flat) {
    const std::string name = state + "." + piece.parameter->name();
    const auto found = manifest.tensors.find(name);
    if (found == manifest.tensors.end()) return;  // frozen when it was saved: it stays zero
    check_state(*piece.parameter, name, found->second, place);
    fill_piece(reader, piece, name, flat, holders_of(optimizer.main_parameters().store(), piece));
  });
  optimizer.set_num_steps(manifest.optimizer->num_steps);
  if (manifest.optimizer->loss_scale)
    optimizer.set_loss_scale_state(*manifest.optimizer->loss_scale);
  return fresh;
}

}  // namespace megatron
