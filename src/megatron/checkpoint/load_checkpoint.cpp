// Loads a CheckpointSource into a model and an optimizer.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/open_weights.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"

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

/// Returns the parameter that a state <state>.<parameter> belongs to.
std::string parameter_of(const std::string& state) { return state.substr(state.find('.') + 1); }

/// Fills the main weights from those of the manifest, which may be null, else from the weights.
void fill_main_parameters(WeightReader& reader, const Manifest* manifest, MainParameters& main) {
  for (std::size_t i = 0; i < main.pieces().size(); ++i) {
    at::Tensor flat = main.read(i);
    const std::string& name = main.pieces()[i].parameter->name();
    const bool is_stored =
        manifest != nullptr && manifest->tensors.contains(kMainParameterPrefix + name);
    fill_piece(reader, main.pieces()[i], is_stored ? kMainParameterPrefix + name : name, flat);
    if (!main.tensors()[i].defined()) main.write(i, flat);
  }
}

/// Loads the float32 main weights that a run in 16 bits saved.
void load_main_parameters(WeightReader& reader, const CheckpointSource& source,
                          const ParamStore& store, MainParameters& main) {
  const std::string place = source.folder.string();
  std::vector<std::string> missing;
  for (const Parameter* parameter : store.parameters()) {
    if (!parameter->is_trained()) continue;
    const std::string name = kMainParameterPrefix + parameter->name();
    const auto found = source.manifest->tensors.find(name);
    if (found == source.manifest->tensors.end()) {
      if (!was_frozen(*source.manifest, parameter->name())) missing.push_back(name);
    } else {
      check_state(*parameter, name, found->second, place);
    }
  }
  require_no_names(place + ": main weights are missing", missing, kWithoutOptimizer);
  fill_main_parameters(reader, source.manifest.get(), main);
}

/// Returns "exp_avg of 20 weights, exp_avg_sq.embedding.weight" for names <state>.<parameter>.
std::string states_text(const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> by_state;
  for (const std::string& name : names) by_state[name.substr(0, name.find('.'))].push_back(name);
  return joined_text(by_state, ", ", [](const auto& one) {
    const auto& [state, of_weights] = one;
    return of_weights.size() == 1 ? of_weights.front()
                                  : state + " of " + std::to_string(of_weights.size()) + " weights";
  });
}

/// Throws a UserError unless the checkpoint holds exactly the states that the optimizer keeps for
/// every parameter of the whole model, except for parameters that were frozen or are. Returns those
/// that were. The result is the same on every rank.
std::set<std::string> check_states(const Manifest& manifest, Optimizer& optimizer,
                                   const std::string& place) {
  const std::vector<std::string>&kept = optimizer.state_tensors(),
        &trained = optimizer.main_parameters().sums().names();
  std::vector<std::string> missing, unused;
  std::set<std::string> fresh;
  for (const std::string& name : kept) {
    const auto found = manifest.tensors.find(name);
    if (found != manifest.tensors.end() && found->second.kind == TensorKind::optimizer) continue;
    if (const std::string parameter = parameter_of(name); was_frozen(manifest, parameter))
      fresh.insert(parameter);
    else
      missing.push_back(name);
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    const std::string parameter = parameter_of(name);
    const bool is_frozen =
        manifest.tensors.contains(parameter) && !std::ranges::binary_search(trained, parameter);
    if (tensor.kind == TensorKind::optimizer && !std::ranges::binary_search(kept, name) &&
        !name.starts_with(kMainParameterPrefix) && !is_frozen)
      unused.push_back(name);
  }
  if (missing.empty() && unused.empty()) return fresh;
  throw UserError(
      {place + ": holds the state of another optimizer (" + manifest.optimizer->name + ")",
       missing.empty() ? "not used: " + states_text(unused) : "missing: " + states_text(missing),
       "train with the optimizer and the flags that saved it, or " +
           std::string(kWithoutOptimizer)});
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
  const auto is_stored = [&](const std::string& name) {
    return source.manifest->tensors.contains(kMainParameterPrefix + name);
  };
  if (source.manifest && std::ranges::any_of(main.sums().names(), is_stored)) {
    load_main_parameters(*reader, source, store, main);
  } else if (main.has_fp32_copies()) {
    fill_main_parameters(*reader, nullptr, main);
  }
  main.copy_main_params_to_model_params();
}

std::set<std::string> load_optimizer(const CheckpointSource& source, Optimizer& optimizer) {
  const std::string place = source.folder.string();
  if (!source.manifest)
    throw UserError({place + ": holds no optimizer state", "", kWithoutOptimizer});
  const Manifest& manifest = *source.manifest;
  if (!manifest.optimizer)
    throw UserError({place + ": holds no optimizer state", "it was saved with --no-save-optim",
                     kWithoutOptimizer});
  std::set<std::string> fresh = check_states(manifest, optimizer, place);
  ManifestReader reader(source.folder, source.manifest);
  optimizer.visit_state(
      [&](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
        const std::string name = state + "." + piece.parameter->name();
        const auto found = manifest.tensors.find(name);
        if (found == manifest.tensors.end()) return;  // frozen when it was saved: it stays zero
        check_state(*piece.parameter, name, found->second, place);
        fill_piece(reader, piece, name, flat);
      });
  optimizer.set_num_steps(manifest.optimizer->num_steps);
  if (manifest.optimizer->loss_scale)
    optimizer.set_loss_scale_state(*manifest.optimizer->loss_scale);
  return fresh;
}

}  // namespace megatron
