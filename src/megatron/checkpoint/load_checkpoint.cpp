// From a recognised source into a model and an optimizer.
#include <memory>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/name_list.h"
#include "megatron/checkpoint/open_weights.h"

namespace megatron {
namespace {

const char* kWithoutOptimizer = "add --no-load-optim, or --finetune";

void check_state(const Parameter& parameter, const std::string& name, const ManifestTensor& tensor, const std::string& place) {
  if (tensor.shape == parameter.sharding().global_shape) return;
  throw UserError({place + ": tensor '" + name + "' has another shape than its parameter",
                   shape_text(tensor.shape) + ", expected " + shape_text(parameter.sharding().global_shape), kWithoutOptimizer});
}

}  // namespace

std::unique_ptr<WeightReader> open_weights(const CheckpointSource& source) {
  if (source.kind == CheckpointSource::Kind::hugging_face) return std::make_unique<HfReader>(source.folder);
  return std::make_unique<ManifestReader>(source.folder);
}

void load_weights(const CheckpointSource& source, ParamStore& store) { fill_store(*open_weights(source), source.folder.string(), store); }

void load_optimizer(const CheckpointSource& source, Optimizer& optimizer) {
  const std::string place = source.folder.string();
  if (source.kind != CheckpointSource::Kind::megatron) throw UserError({place + ": holds no optimizer state", "", kWithoutOptimizer});
  ManifestReader reader(source.folder);
  const Manifest& manifest = reader.manifest();
  if (!manifest.optimizer) throw UserError({place + ": holds no optimizer state", "it was saved without", kWithoutOptimizer});
  std::vector<std::string> missing, unused;
  std::set<std::string> visited;
  optimizer.visit_state([&](const Parameter& parameter, const std::string& state, at::Tensor& tensor) {
    const std::string name = state + "." + parameter.name();
    const auto found = manifest.tensors.find(name);
    if (found == manifest.tensors.end() || found->second.kind != TensorKind::optimizer) {
      missing.push_back(name);
      return;
    }
    visited.insert(name);
    check_state(parameter, name, found->second, place);
    fill_local(parameter.sharding(), parameter.axis(), tensor,
               [&](const Region& region, at::Tensor destination) { reader.copy_region(name, region, std::move(destination)); });
  });
  for (const auto& [name, tensor] : manifest.tensors) {
    if (tensor.kind == TensorKind::optimizer && !visited.contains(name)) unused.push_back(name);
  }
  if (!missing.empty() || !unused.empty()) {
    throw UserError({place + ": holds the state of another optimizer (" + manifest.optimizer->name + ")",
                     missing.empty() ? "not used: " + name_list(unused) : "missing: " + name_list(missing), kWithoutOptimizer});
  }
  optimizer.set_num_steps(manifest.optimizer->num_steps);
}

TrainingProgress load_progress(const CheckpointSource& source) {
  return source.is_release ? TrainingProgress{} : read_manifest(source.folder).progress;
}

}  // namespace megatron
