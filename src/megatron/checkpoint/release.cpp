#include "megatron/checkpoint/release.h"

#include <nlohmann/json.hpp>

#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/checkpoint_writer.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/models/architecture.h"

namespace megatron {

std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source,
                                    const ReleaseTarget& target) {
  CheckpointContent content;
  content.manifest.model = architecture_to_json(source.model);
  content.manifest.settings = tokenizer_to_json(source.tokenizer);
  content.manifest.family = source.family;
  content.manifest.model_type = source.model_type;
  content.auxiliary_files = source.auxiliary_files;
  std::int64_t index = 0;
  const auto add = [&](const WeightInfo& info, TensorKind kind) {
    if (index++ % target.world.size != target.world.rank) return;
    content.weights.push_back(
        {.name = info.name,
         .kind = kind,
         .type = to_safetensors_dtype(info.type),
         .global_shape = info.shape,
         .slice = whole_slice(info.shape),
         .tensor = [&reader, name = info.name] { return reader.read(name); }});
  };
  for (const WeightInfo& info : reader.weights()) add(info, TensorKind::weight);
  for (const WeightInfo& info : reader.states()) add(info, TensorKind::state);
  return write_checkpoint(target.root, kReleaseFolder, kReleaseFolder, std::move(content),
                          {.world = target.world, .device = target.device});
}

}  // namespace megatron
