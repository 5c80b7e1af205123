#include "megatron/checkpoint/megatron_lm/torch_dist.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/checkpoint/megatron_lm/nemo.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/formats/dcp_metadata.h"
#include "megatron/formats/dcp_writer.h"
#include "megatron/models/architecture.h"
#include "megatron/models/model_family.h"

namespace megatron {
namespace {

constexpr const char *kIndex = ".metadata", *kCommonFile = "common.pt",
                     *kCommonState = "common_state/shard_0_1", *kFormatFile = "metadata.json",
                     *kEmbedding = "embedding.word_embeddings.weight", *kArgs = "args";
constexpr std::int64_t kMaxPartBytes = std::int64_t{1} << 30;
constexpr const char* kFolderFormat =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
    R"("common_backend": "torch", "common_backend_version": 1})";

/// The files of a folder, mapped once.
class MappedFolder {
 public:
  explicit MappedFolder(fs::path folder) : folder_(std::move(folder)) {}
  const MappedFile& file(const std::string& name) {
    const auto [place, is_new] = files_.try_emplace(name);
    if (is_new) place->second = MappedFile(folder_ / name);
    return place->second;
  }

 private:
  fs::path folder_;
  std::map<std::string, MappedFile> files_;
};

/// Returns the part that a piece of a tensor of shape [parts of each axis …, elements of a part]
/// has elements of, which is how Megatron-LM saves flat states of optimizers.
TensorSlice flat_part(const DcpTensor& tensor, const DcpPiece& piece, const std::string& place) {
  const Shape& whole = tensor.original_shape;
  Shape offset, part;
  bool is_valid = tensor.shape.size() == whole.size() + 1;
  for (std::size_t i = 0; is_valid && i < whole.size(); ++i) {
    is_valid = tensor.shape[i] > 0 && whole[i] % tensor.shape[i] == 0 && piece.sizes[i] == 1;
    part.push_back(is_valid ? whole[i] / tensor.shape[i] : 0);
    offset.push_back(piece.offsets[i] * part[i]);
  }
  if (!is_valid || num_elements(part) != tensor.shape.back())
    throw UserError({place, shape_text(tensor.shape) + " is no flat form of " + shape_text(whole),
                     "save the checkpoint again with a newer Megatron-LM"});
  return slice_at(std::move(offset), std::move(part));
}

ManifestTensor tensor_of(const DcpTensor& tensor, MappedFolder& folder, const std::string& place) {
  const bool is_flat = !tensor.original_shape.empty();
  ManifestTensor result{.type = safetensors_dtype(tensor.dtype, place),
                        .shape = is_flat ? tensor.original_shape : tensor.shape};
  for (const DcpPiece& piece : tensor.pieces) {
    const MappedFile& file = folder.file(piece.file);
    const std::string where = file.path().string() + ": " + place;
    StoredElements stored =
        stored_elements(read_dcp_tensor(file.bytes(), tensor, piece, where), piece.file, where);
    if (is_flat) stored.runs.front().first = piece.offsets.back();
    const TensorSlice slice =
        is_flat ? flat_part(tensor, piece, place) : slice_at(piece.offsets, piece.sizes);
    MEGATRON_CHECK(add_pieces(stored, slice.shape, slice, result.pieces), where);
  }
  return result;
}

TorchFile object_of(const DcpPiece& piece, MappedFolder& files) {
  const MappedFile& file = files.file(piece.file);
  return open_dcp_piece(file.bytes(), piece, file.path().string());
}

/// Reads what is not sharded: a file of its own, or an object of DCP.
TorchFile common_state(const fs::path& folder, const DcpMetadata& index, MappedFolder& files) {
  const auto object = index.objects.find(kCommonState);
  if (object != index.objects.end()) return object_of(object->second, files);
  if (!fs::exists(folder / kCommonFile))
    throw UserError({folder.string() + ": it has neither " + kCommonFile + " nor " + kCommonState,
                     "the architecture of its model is not known",
                     "load a checkpoint that Megatron-LM saved"});
  return open_torch_file(folder / kCommonFile);
}

/// Returns the number of rows of the embedding, of which each model has one.
std::int64_t vocab_size_of(const ForeignTensors& tensors, const std::string& place) {
  const auto embedding = tensors.find(kEmbedding);
  if (embedding == tensors.end() || embedding->second.shape.empty())
    throw UserError(
        {place + ": there is no " + kEmbedding, "", "load a checkpoint of a language model"});
  return embedding->second.shape.front();
}

/// Returns a number that DCP keeps as an object; 0 where there is none.
double stored_number(const DcpMetadata& index, const std::string& name, MappedFolder& files) {
  const auto object = index.objects.find(name);
  if (object == index.objects.end()) return 0;
  const TorchFile file = object_of(object->second, files);
  const bool is_number = file.root().is(PickleKind::integer) || file.root().is(PickleKind::real);
  return is_number ? file.root().real(name) : 0;
}

/// Describes a state dict of DTensors, of which each entry that is no tensor is an object.
Manifest describe_fsdp_dtensor(const fs::path& folder, const DcpMetadata& index) {
  const std::string place = folder.string();
  MappedFolder files(folder);
  ForeignTensors tensors;
  for (const auto& [name, tensor] : index.tensors) {
    const std::string what = "tensor '" + name + "'";
    if (const auto part = dtensor_part(name))
      add_dtensor_part(*part, tensor_of(tensor, files, what), place + ": " + what, tensors);
  }
  Manifest manifest;
  const TorchFile args = object_of(index.objects.at(kArgs), files);
  const DeclaredTensors declared =
      describe_args(args.root(), vocab_size_of(tensors, place), place, manifest);
  TrainingProgress& progress = manifest.progress;
  const auto count = [&](const std::string& name) {
    return static_cast<std::int64_t>(stored_number(index, name, files));
  };
  progress.iteration = count("iteration");
  progress.floating_point_operations =
      stored_number(index, "num_floating_point_operations_so_far", files);
  progress.scheduler_num_steps = count("opt_param_scheduler.num_steps");
  std::string steps = "iteration";
  for (const auto& [name, object] : index.objects)
    if (name.starts_with("optimizer.") && name.ends_with(".step")) steps = name;
  manifest.optimizer->num_steps = count(steps);
  add_torch_dist_tensors(tensors, declared, place, manifest);
  return manifest;
}

/// Returns the optimizer's states and the type of each.
std::map<std::string, at::ScalarType> optimizer_states(const CheckpointSource& source) {
  std::map<std::string, at::ScalarType> states;
  if (!source.manifest || !source.manifest->optimizer) return states;
  for (const auto& [name, tensor] : source.manifest->tensors)
    if (tensor.kind == TensorKind::optimizer)
      states.emplace(name.substr(0, name.find('.') + 1), to_scalar_type(tensor.type, name));
  return states;
}

/// Returns the number of layers to stack: all if they are alike, else none.
std::int64_t num_stacked_layers(const WeightReader& reader, std::int64_t num_layers) {
  std::map<Shape, std::string> layers;  // what each has
  for (const auto* infos : {&reader.weights(), &reader.states()})
    for (const WeightInfo& info : *infos) {
      const TorchDistPlace place = torch_dist_place("", info.name, num_layers);
      layers[place.offset] += place.name + dtype_name(info.type) + shape_text(info.shape);
    }
  layers.erase(Shape());  // what is in no layer
  std::set<std::string> kinds;
  for (const auto& [layer, kind] : layers) kinds.insert(kind);
  return std::cmp_equal(layers.size(), num_layers) && kinds.size() == 1 ? num_layers : 0;
}

/// Returns a shape or an offset behind that of a stack of layers.
Shape behind(Shape stack, const Shape& shape) {
  stack.insert(stack.end(), shape.begin(), shape.end());
  return stack;
}

/// Lists a tensor of ours, or its rows from `first_row` on, in parts along its first axis. One
/// without a name is zero.
void add_parts(WeightReader& reader, const TorchDistPlace& place, const WeightInfo& ours,
               std::vector<WriteItem>& items, std::int64_t first_row = 0) {
  const std::int64_t rows = ours.shape.empty() ? 1 : ours.shape.front(),
                     bytes = num_elements(ours.shape) *
                             static_cast<std::int64_t>(c10::elementSize(ours.type)),
                     step = std::max<std::int64_t>(
                         1, kMaxPartBytes * rows / std::max<std::int64_t>(bytes, 1));
  std::int64_t first = 0;
  do {
    Shape offset(ours.shape.size(), 0), shape = ours.shape;
    if (!shape.empty()) offset.front() = first, shape.front() = std::min(step, rows - first);
    Shape from = offset;
    if (!shape.empty()) from.front() += first_row;
    items.push_back({.name = place.name,
                     .type = to_safetensors_dtype(ours.type),
                     .global_shape = behind(place.stack, ours.shape),
                     .slice = slice_at(behind(place.offset, offset),
                                       behind(Shape(place.stack.size(), 1), shape)),
                     .tensor = [&reader, ours, slice = slice_at(from, shape)] {
                       at::Tensor part = at::zeros(slice.shape, ours.type);
                       if (!ours.name.empty()) reader.copy_slice(ours.name, slice, part);
                       return part;
                     }});
    first += step;
  } while (first < rows);
}

/// Lists the tensors under Megatron's names, where `num_stacked` layers are one tensor, or, without
/// that number, under ours.
std::vector<WriteItem> items_of(WeightReader& reader, const CheckpointSource& source,
                                std::optional<std::int64_t> num_stacked = std::nullopt) {
  std::vector<WriteItem> items;
  const std::map<std::string, Sharding> shardings =
      num_stacked ? declared_shardings(find_model_family(source.family), source.model)
                  : std::map<std::string, Sharding>();
  // Adds a tensor that is `name`, or the state of it, in the parts that Megatron-LM saves.
  const auto add = [&](const std::string& state, const std::string& name, const WeightInfo& ours) {
    TorchDistPlace place{.name = state + name};
    if (num_stacked) place = torch_dist_place(state, name, *num_stacked);
    const auto found = shardings.find(name);
    std::vector<SavedRows> apart;
    if (found != shardings.end()) apart = rows_saved_apart(name, found->second);
    if (apart.empty()) add_parts(reader, place, ours, items);
    for (const SavedRows& rows : apart) {
      TorchDistPlace part = place;
      (part.name += ".") += rows.name;
      WeightInfo of_part = ours;
      of_part.shape.front() = rows.count;
      add_parts(reader, part, of_part, items, rows.first);
    }
  };
  for (const auto* infos : {&reader.weights(), &reader.states()})
    for (const WeightInfo& info : *infos) add("", info.name, info);
  auto states = optimizer_states(source);
  if (num_stacked && !states.empty()) states.emplace(kMainParameterPrefix, at::kFloat);
  for (const auto& [state, type] : states)
    for (const WeightInfo& info : reader.weights()) {
      WeightInfo ours{.name = state + info.name, .shape = info.shape, .type = type};
      const auto stored = source.manifest->tensors.find(ours.name);
      const bool is_stored = stored != source.manifest->tensors.end();
      if (!num_stacked && !is_stored) continue;
      if (!num_stacked) ours.type = to_scalar_type(stored->second.type, ours.name);
      // Megatron stores main weights always and states of frozen weights too, which are zero.
      if (!is_stored) ours.name = state == kMainParameterPrefix ? info.name : "";
      add(state, info.name, ours);
    }
  return items;
}

/// Returns the modules of a weight that have a state of their own, which Transformer Engine keeps
/// and megatron-core asks for even where it is empty.
std::vector<std::string> modules_with_state(const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.'));
  const std::string leaf = module.substr(module.rfind('.') + 1);
  if (!leaf.starts_with("linear_") && leaf != "eh_proj" && leaf != "in_proj" &&
      leaf != "out_proj" && !leaf.ends_with("norm"))
    return {};
  if (leaf != "linear_proj") return {module};
  return {module, module.substr(0, module.size() - leaf.size()) + "core_attention"};
}

/// Writes the empty states of modules, one for each layer and expert.
void write_module_states(const WeightReader& reader, std::int64_t num_stacked, DcpWriter& writer) {
  std::set<std::string> written;
  for (const auto* infos : {&reader.weights(), &reader.states()})
    for (const WeightInfo& info : *infos) {
      auto [name, stack, offset] = torch_dist_place("", info.name, num_stacked);
      const bool is_of_experts = name.find(".mlp.experts.") != std::string::npos;
      if (is_of_experts || stack.empty()) {
        stack.push_back(is_of_experts ? info.shape.front() : 1);
        offset.push_back(0);
      }
      do {
        const std::string shard =
            "._extra_state/shard_" + joined_text(offset, ".") + "_" + joined_text(stack, ".");
        for (const std::string& module : modules_with_state(name))
          if (written.insert(module + shard).second)
            writer.write_object(module + shard, Json::array({nullptr}));
      } while (is_of_experts && ++offset.back() < stack.back());
    }
}

void write_items(const std::vector<WriteItem>& items, DcpWriter& writer) {
  for (const WriteItem& item : items) {
    const at::Tensor part = item.tensor();
    writer.write(item.name,
                 {.dtype = *find_torch_dtype(dtype_name(part.scalar_type())),
                  .shape = item.global_shape,
                  .pieces = {{.offsets = item.slice.global_offset, .sizes = item.slice.shape}}},
                 tensor_bytes(part));
  }
}

}  // namespace

bool is_torch_dist_folder(const fs::path& folder) {
  return fs::exists(folder / kIndex) || fs::exists(folder / kFormatFile);
}

Manifest describe_torch_dist(const fs::path& folder) {
  const std::string place = folder.string();
  const auto format = read_megatron_folder_format(folder);
  if (format && format->sharded_backend != "torch_dist")
    throw UserError({place + ": format '" + format->sharded_backend + "'", "is not supported",
                     is_nemo_weights(folder)
                         ? "load it with NeMo and save it with save_ckpt_format=\"torch_dist\""
                         : "load it with Megatron-LM and save it with --ckpt-format torch_dist"});
  const DcpMetadata index = read_dcp_metadata(folder);
  if (!format && index.objects.contains(kArgs)) return describe_fsdp_dtensor(folder, index);
  if (!format)
    throw UserError({place + ": metadata.json is missing",
                     "the save was not completed, or torch.distributed.checkpoint wrote it alone",
                     "load another iteration with --ckpt-step"});
  const bool is_nemo =
      is_nemo_weights(folder) || index.tensors.contains(std::string("module.") + kEmbedding);
  MappedFolder files(folder);
  const TorchFile common = common_state(folder, index, files);
  Manifest manifest;
  ForeignTensors tensors;
  for (const auto& [name, tensor] : index.tensors)
    tensors.emplace(is_nemo ? without_module(name) : name,
                    tensor_of(tensor, files, "tensor '" + name + "'"));
  const std::int64_t vocab_size = vocab_size_of(tensors, place);
  const DeclaredTensors declared =
      is_nemo ? describe_nemo(folder, common.root(), vocab_size, manifest)
              : describe_saved_args(common.root(), vocab_size, place, manifest);
  add_torch_dist_tensors(tensors, declared, place, manifest);
  return manifest;
}

fs::path write_torch_dist(WeightReader& reader, const CheckpointSource& source,
                          const fs::path& root) {
  const bool is_hybrid = source.family == "hybrid";  // whose layers Megatron-LM never stacks
  if (source.family != "gpt" && !is_hybrid)
    throw UserError({"torch_dist is not written for models of the family " + source.family, "",
                     "use --format dcp or megatron"});
  const TransformerConfig model = canonical_architecture(source.model);
  const LinearAttentionConfig& linear = model.linear_attention;
  if (!linear.norm_1p || linear.norm_epsilon || linear.allow_neg_eigval)
    throw UserError({"torch_dist: Megatron-LM's gated delta nets lack a setting of the model",
                     "--no-linear-norm-1p, --linear-norm-epsilon or --linear-allow-neg-eigval",
                     "use --format dcp or megatron"});
  const MambaConfig &mamba = model.mamba, theirs = {};
  if (mamba.num_norm_groups() != mamba.num_groups || mamba.norm_epsilon != theirs.norm_epsilon ||
      mamba.conv_kernel_dim != theirs.conv_kernel_dim)
    throw UserError({"torch_dist: Megatron-LM's Mamba-2 layers lack a setting of the model",
                     "--mamba-norm-groups, --mamba-norm-epsilon or --mamba-conv-kernel-dim",
                     "use --format dcp or megatron"});
  const std::int64_t num_stacked =
      is_hybrid ? 0 : num_stacked_layers(reader, source.model.num_layers);
  const std::vector<WriteItem> items = items_of(reader, source, num_stacked);
  const std::string iteration =
      source.is_release ? kReleaseFolder : iteration_folder(source.iteration);
  PendingFolder pending = begin_new_folder(root, num_bytes(items));
  const fs::path folder = pending.path() / iteration;
  megatron::create_directories(folder);
  DcpWriter writer(folder);
  write_items(items, writer);
  write_module_states(reader, num_stacked, writer);
  writer.close();
  FileWriter common(folder / kCommonFile);
  write_torch_file(common, common_state_of({.source = source,
                                            .weight_type = reader.weights().front().type,
                                            .layers_are_alike = num_stacked > 0,
                                            .has_optimizer = !optimizer_states(source).empty()}));
  common.close(/*sync=*/true);
  write_file(folder / kFormatFile, kFolderFormat);
  write_file(pending.path() / kTrackerFile,
             source.is_release ? kReleaseFolder : std::to_string(source.iteration));
  pending.commit();
  return root / iteration;
}

void write_dcp(WeightReader& reader, const CheckpointSource& source, const fs::path& folder) {
  const std::vector<WriteItem> items = items_of(reader, source);
  PendingFolder pending = begin_new_folder(folder, num_bytes(items));
  DcpWriter writer(pending.path());
  write_items(items, writer);
  writer.close();
  pending.commit();
}

}  // namespace megatron
