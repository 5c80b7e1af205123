// Saves a training run's checkpoint: the weights, and the optimizer's state.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/checkpoint_writer.h"
#include "megatron/checkpoint/host_snapshot.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

/// Returns the parameters that this rank writes among those that every data-parallel rank of a
/// group holds. The sizes are balanced over ranks.
std::set<const Parameter*> parameters_to_write(const ParamStore& store) {
  std::set<const Parameter*> mine;
  for (std::size_t group = 0; group < store.groups().size(); ++group) {
    const Axis& all = store.groups()[group].data_parallel.all;
    std::vector<std::int64_t> load(static_cast<std::size_t>(all.size), 0);
    for (const Parameter* parameter : store.parameters()) {
      if (store.group_of(*parameter) != group) continue;
      const auto least = std::ranges::min_element(load);
      *least += num_elements(parameter->local_shape());
      if (least - load.begin() == all.rank) mine.insert(parameter);
    }
  }
  return mine;
}

/// A flat tensor of a piece, which may be read when it is written.
struct FlatTensor {
  at::ScalarType type;
  std::function<at::Tensor()> read;
};

/// Collects the slices that this rank writes. Every element is written by exactly one rank.
class SavePlanner {
 public:
  explicit SavePlanner(const ParamStore& store)
      : store_(store), mine_(parameters_to_write(store)) {}

  void add_weights(std::vector<WriteItem>& pieces) const {
    for (const ParameterPiece& piece : store_.kept_pieces()) {
      const Parameter& parameter = *piece.parameter;
      const bool is_state = parameter.spec().kind == ParameterKind::state;
      if (writes(piece, store_.buckets()[piece.bucket].shards_values()))
        add(parameter.name(), is_state ? TensorKind::state : TensorKind::weight, piece,
            {parameter.dtype(), [&store = store_, piece] { return store.read_kept(piece); }},
            pieces);
    }
  }
  /// `flat` is a state of the optimizer. Every data-parallel rank holds it, or, with a distributed
  /// optimizer, only the replicas of this shard do.
  void add_state(const std::string& name, const ParameterPiece& piece, const FlatTensor& flat,
                 std::vector<WriteItem>& pieces) const {
    if (writes(piece, store_.buckets()[piece.bucket].is_sharded()))
      add(name + piece.parameter->name(), TensorKind::optimizer, piece, flat, pieces);
  }

 private:
  /// Returns whether this rank writes a piece that every data-parallel rank holds, or, when it is
  /// sharded, only the replicas of this shard.
  bool writes(const ParameterPiece& piece, bool is_sharded) const {
    if (!is_sharded) return mine_.contains(store_.find(piece.parameter->name()));
    return store_.buckets()[piece.bucket].holders(true).rank == 0;
  }
  static void add(const std::string& name, TensorKind kind, const ParameterPiece& piece,
                  const FlatTensor& flat, std::vector<WriteItem>& pieces) {
    const Parameter& parameter = *piece.parameter;
    for (const TensorSlice& slice : piece_slices(piece, parameter.owned_slices())) {
      pieces.push_back({.name = name,
                        .kind = kind,
                        .is_frozen = parameter.spec().kind == ParameterKind::frozen,
                        .type = to_safetensors_dtype(flat.type),
                        .global_shape = parameter.sharding().global_shape,
                        .slice = slice,
                        .tensor = [read = flat.read, piece, slice] {
                          return view_slice(read(), piece, slice);
                        }});
    }
  }

  const ParamStore& store_;
  std::set<const Parameter*> mine_;
};

/// Adds the float32 main weights of 16-bit weights.
void add_main_parameters(const SavePlanner& list, MainParameters& main,
                         std::vector<WriteItem>& pieces) {
  if (!main.has_fp32_copies()) return;
  for (std::size_t i = 0; i < main.pieces().size(); ++i)
    list.add_state(kMainParameterPrefix, main.pieces()[i],
                   {at::kFloat, [&main, i] { return main.read(i); }}, pieces);
}

}  // namespace

std::filesystem::path save_checkpoint(const std::filesystem::path& root,
                                      const SaveRequest& request) {
  const auto write = begin_checkpoint(root, request);
  write->write();
  return write->commit(std::to_string(request.progress.iteration));
}

std::unique_ptr<CheckpointWrite> begin_checkpoint(const std::filesystem::path& root,
                                                  const SaveRequest& request,
                                                  HostSnapshot* snapshot) {
  MEGATRON_CHECK(request.model != nullptr && request.weights != nullptr,
                 "a checkpoint needs a model and its weights");
  CheckpointContent content;
  content.manifest.progress = request.progress;
  content.manifest.family = request.family;
  content.manifest.model = architecture_to_json(*request.model);
  content.manifest.settings = request.settings != nullptr
                                  ? fields_to_json(settings_table().set(), request.settings)
                                  : Json::object();
  if (request.origin != nullptr) {
    content.manifest.model_type = request.origin->model_type;
    content.auxiliary_files = request.origin->auxiliary_files;
  }
  if (request.tokenizer != nullptr)
    replace_tokenizer_files(*request.tokenizer, content.auxiliary_files);
  const SavePlanner list(*request.weights);
  list.add_weights(content.weights);
  content.manifest.rerun_state = request.rerun_state;
  if (request.optimizer != nullptr) {
    content.manifest.optimizer = OptimizerRecord{
        .name = request.settings != nullptr ? request.settings->optimizer->optimizer : "",
        .num_steps = request.optimizer->num_steps(),
        .loss_scale = request.optimizer->loss_scale_state()};
    add_main_parameters(list, request.optimizer->main_parameters(), content.optimizer);
    request.optimizer->list_state([&](const ParameterPiece& piece, const std::string& state,
                                      at::ScalarType type, std::function<at::Tensor()> read) {
      list.add_state(state + ".", piece, {type, std::move(read)}, content.optimizer);
    });
  }
  if (snapshot != nullptr) {
    snapshot->restart();
    snapshot->take(content.weights);
    snapshot->take(content.optimizer);
    if (request.before_commit) request.before_commit();
  }
  return std::make_unique<CheckpointWrite>(
      root, iteration_folder(request.progress.iteration), std::move(content),
      CheckpointWriteOptions{
          .lock = request.lock,
          .files = request.files != nullptr ? *request.files : default_file_system(),
          .world = request.world,
          .device = request.weights->device(),
          .before_commit = snapshot == nullptr ? request.before_commit : std::function<void()>(),
          .placement = request.placement,
          .last = request.last});
}

}  // namespace megatron
