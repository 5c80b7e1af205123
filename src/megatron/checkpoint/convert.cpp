#include "megatron/checkpoint/convert.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/folder_writer.h"
#include "megatron/checkpoint/hf_writer.h"
#include "megatron/checkpoint/open_weights.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source, const ConvertRequest& request) {
  CheckpointContent content;
  content.manifest.model = architecture_to_json(source.model);
  content.manifest.settings = Json::object();
  content.manifest.model_type = source.model_type;
  content.carried = source.carried;
  for (const WeightInfo& info : reader.weights()) {
    const at::ScalarType type = request.dtype.value_or(info.type);
    content.weights.push_back({.name = info.name,
                               .kind = TensorKind::weight,
                               .type = stored_type_of(type),
                               .global_shape = info.shape,
                               .region = {Shape(info.shape.size(), 0), info.shape},
                               .tensor = [&reader, name = info.name, type] { return reader.read(name).to(type); }});
  }
  return write_checkpoint(request.save, kReleaseFolder, kReleaseFolder, std::move(content));
}

std::string export_family(const CheckpointSource& source, const ConvertRequest& request) {
  if (request.hf_model_type.empty()) return source.model_type;
  const auto families = hf_families();
  if (std::find(families.begin(), families.end(), request.hf_model_type) == families.end()) {
    throw UserError({"--hf-model-type", request.hf_model_type, "use gpt2, llama, qwen2, qwen3 or mistral"});
  }
  return request.hf_model_type;
}

}  // namespace

std::filesystem::path convert_checkpoint(const ConvertRequest& request) {
  const auto source = find_checkpoint(request.load, request.step);
  if (!source) throw UserError({"--load " + request.load.string() + ": there is no checkpoint", "", "check the path"});
  const auto reader = open_weights(*source);
  if (request.format == "megatron") return write_release(*reader, *source, request);
  MEGATRON_CHECK(request.format == "hf", "unknown format ", request.format);
  write_hf_directory(*reader,
                     {.model = source->model, .model_type = export_family(*source, request), .dtype = request.dtype, .carried = source->carried},
                     request.save);
  return request.save;
}

}  // namespace megatron
