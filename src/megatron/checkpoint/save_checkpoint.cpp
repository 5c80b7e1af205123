// A training run's checkpoint: the boxes of every weight and of the optimizer's state.
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/folder_writer.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/settings_tables.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

Json settings_to_json(const Settings& settings) {
  Json json = Json::object();
  for (const Field& field : settings_table().set().fields) json[field.name] = join_values(field.get(&settings));
  return json;
}

/// One piece per box of the parameter; `tensor` has its local shape.
void add_pieces(const std::string& name, TensorKind kind, const Parameter& parameter, const at::Tensor& tensor, std::vector<PieceToWrite>& pieces) {
  for (const Box& box : parameter.sharding().boxes(parameter.axis())) {
    pieces.push_back({.name = name,
                      .kind = kind,
                      .type = stored_type_of(tensor.scalar_type()),
                      .global_shape = parameter.sharding().global_shape,
                      .region = {box.global_offset, box.shape},
                      .tensor = [part = narrow_to(tensor, box.local_offset, box.shape)] { return part; }});
  }
}

/// The float32 weights behind 16-bit ones.
void add_main_parameters(const MainParameters& main, std::vector<PieceToWrite>& pieces) {
  if (!main.are_separate()) return;
  for (std::size_t i = 0; i < main.tensors().size(); ++i) {
    const Parameter& parameter = *main.parameters()[i];
    add_pieces(kMainParameterPrefix + parameter.name(), TensorKind::optimizer, parameter, main.tensors()[i], pieces);
  }
}

}  // namespace

std::filesystem::path save_checkpoint(const std::filesystem::path& root, const SaveRequest& request) {
  MEGATRON_CHECK(request.model != nullptr && request.weights != nullptr, "a checkpoint needs a model and its weights");
  CheckpointContent content;
  content.manifest.progress = request.progress;
  content.manifest.model = architecture_to_json(*request.model);
  content.manifest.settings = request.settings != nullptr ? settings_to_json(*request.settings) : Json::object();
  if (request.origin != nullptr) {
    content.manifest.model_type = request.origin->model_type;
    content.carried = request.origin->carried;
  }
  for (const Parameter* parameter : request.weights->parameters()) {
    add_pieces(parameter->name(), TensorKind::weight, *parameter, parameter->value(), content.weights);
  }
  content.manifest.rerun_state = request.rerun_state;
  if (request.optimizer != nullptr) {
    content.manifest.optimizer = OptimizerRecord{.name = request.settings != nullptr ? request.settings->optimizer.optimizer : "",
                                                 .num_steps = request.optimizer->num_steps(),
                                                 .loss_scale = request.optimizer->loss_scale_state()};
    add_main_parameters(request.optimizer->main_parameters(), content.optimizer);
    request.optimizer->visit_state([&](const Parameter& parameter, const std::string& state, at::Tensor& tensor) {
      add_pieces(state + "." + parameter.name(), TensorKind::optimizer, parameter, tensor, content.optimizer);
    });
  }
  const std::int64_t iteration = request.progress.iteration;
  return write_checkpoint(root, iteration_folder(iteration), std::to_string(iteration), std::move(content), request.lock,
                          request.files != nullptr ? *request.files : disk());
}

}  // namespace megatron
