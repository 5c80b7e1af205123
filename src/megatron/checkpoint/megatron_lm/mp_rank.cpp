#include "megatron/checkpoint/megatron_lm/mp_rank.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/formats/torch_file.h"

namespace megatron {
namespace {

constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight",
                           kLayers = "decoder.layers.", kLocalExperts = "local_experts.";

/// Older names, in the order in which they are replaced.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kRenames{{
    {"language_model.", ""},
    {"transformer.", "decoder."},
    {"encoder.", "decoder."},
    {".attention.", ".self_attention."},
    {".query_key_value.", ".linear_qkv."},
    {".self_attention.dense.", ".self_attention.linear_proj."},
    {".dense_h_to_4h.", ".linear_fc1."},
    {".dense_4h_to_h.", ".linear_fc2."},
    {".input_norm.", ".input_layernorm."},
    {".post_attention_norm.", ".pre_mlp_layernorm."},
    {".post_attention_layernorm.", ".pre_mlp_layernorm."},
    {"decoder.final_norm.", "decoder.final_layernorm."},
    {".mlp.local_experts.", ".mlp.experts.local_experts."},
    {".mlp.experts.experts.", ".mlp.experts."},
    {"word_embeddings_for_head.weight", ""},  // the last stage's copy of the embedding
}};

/// The sizes of the job that saved, and a rank of it.
struct Coordinates {
  std::int64_t tp = 0, pp = 0, ep = 0;
};

struct RankFile {
  Coordinates at;
  std::string name;  ///< relative to the folder
  TorchFile content;
};

std::int64_t integer_arg(const PickleValue& args, const char* name) {
  const auto value = args.find(name);
  return value && value->is(PickleKind::integer) ? std::max<std::int64_t>(1, value->integer(name))
                                                 : 1;
}

/// Returns the path below the folder of a rank's file.
std::string file_name(const Coordinates& at, const Coordinates& sizes) {
  std::string folder = format("mp_rank_%02d", static_cast<int>(at.tp));
  if (sizes.pp > 1) folder += format("_%03d", static_cast<int>(at.pp));
  if (sizes.ep > 1) folder += format("_%03d", static_cast<int>(at.ep));
  return folder;
}

/// Returns the model file of a rank's folder; nullopt when there is none.
std::optional<std::string> model_file(const fs::path& root, const std::string& folder) {
  for (const char* name : {"model_optim_rng.pt", "model_rng.pt", "model_states.pt"})
    if (fs::exists(root / folder / name)) return folder + "/" + name;
  return std::nullopt;
}

RankFile open_rank(const fs::path& root, const std::string& folder, const Coordinates& at) {
  const auto name = model_file(root, folder);
  if (!name)
    throw UserError({(root / folder).string() + ": there is no model_optim_rng.pt",
                     "the args say that the run had this rank", "copy the whole checkpoint"});
  return {.at = at, .name = *name, .content = open_torch_file(root / *name)};
}

std::string our_name(std::string name) {
  for (const auto& [old, current] : kRenames) {
    // Names begin with a dot for the rules that want one.
    const std::string dotted = "." + name;
    const bool wants_dot = old.starts_with('.');
    const auto place = (wants_dot ? dotted : name).find(old);
    if (place == std::string::npos || (!wants_dot && place != 0)) continue;
    name = wants_dot ? std::string(dotted).replace(place, old.size(), current).substr(1)
                     : name.replace(place, old.size(), current);
  }
  return name;
}

/// Returns the number behind `begin` in a name that starts with it.
std::optional<std::int64_t> number_behind(std::string_view name, std::string_view begin) {
  if (!name.starts_with(begin)) return std::nullopt;
  std::int64_t value = 0;
  const char* first = name.data() + begin.size();
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), value);
  if (error != std::errc() || end == first) return std::nullopt;
  return value;
}

/// One tensor of one rank, under our name but for the number of its layer.
struct LocalTensor {
  std::string name;
  RankTensor tensor;
  std::optional<std::int64_t> layer, expert;  ///< numbers on the rank
};

/// Takes the number of a local expert out of a name: of its own module, or of a grouped weight.
void split_expert(LocalTensor& local) {
  std::string& name = local.name;
  const auto place = name.find(kLocalExperts);
  if (place != std::string::npos) {
    local.expert = number_behind(std::string_view(name).substr(place), kLocalExperts);
    const auto end = name.find('.', place + kLocalExperts.size());
    if (local.expert && end != std::string::npos) name.erase(place, end + 1 - place);
    return;
  }
  for (const std::string_view weight : {"linear_fc1.weight", "linear_fc2.weight"}) {
    const auto grouped = name.find(".mlp.experts." + std::string(weight));
    if (grouped == std::string::npos) continue;
    const std::size_t begin = grouped + std::string_view(".mlp.experts.").size();
    local.expert = number_behind(std::string_view(name).substr(begin), weight);
    if (local.expert) name.resize(begin + weight.size());
  }
}

/// Adds a tensor, unless it is none of the model's.
void add_local(const std::string& name, RankTensor tensor, std::vector<LocalTensor>& all) {
  LocalTensor local{.name = our_name(name), .tensor = std::move(tensor), .layer = {}};
  if (local.name.empty() || local.name.ends_with("_extra_state") ||
      local.name.find(".rotary_") != std::string::npos)
    return;
  split_expert(local);
  local.layer = number_behind(local.name, kLayers);
  if (local.layer) {
    const auto end = local.name.find('.', kLayers.size());
    local.name = end == std::string::npos ? "" : local.name.substr(end + 1);
  }
  all.push_back(std::move(local));
}

/// Cuts a slice into runs of rows of the layouts of q, k and v before checkpoint version 2: row
/// (c, head, d) of version 0 and (head, d, c) of version 1 are our row (head, c, d).
std::vector<TensorSlice> old_qkv_slices(const TensorSlice& slice, double version,
                                        std::int64_t head_size) {
  const std::int64_t rows = slice.shape.front(), heads = rows / (3 * head_size),
                     run = version < 1 ? head_size : 1;
  std::vector<TensorSlice> all;
  for (std::int64_t row = 0; row < rows; row += run) {
    const std::int64_t head = row / (3 * head_size), c = row / head_size % 3, d = row % head_size;
    TensorSlice& one = all.emplace_back(slice);
    one.shape.front() = run;
    one.global_offset.front() += row;
    one.local_offset.front() =
        version < 1 ? (c * heads + head) * head_size + d : (head * head_size + d) * 3 + c;
  }
  return all;
}

class FolderDescription {
 public:
  explicit FolderDescription(fs::path folder) : folder_(std::move(folder)) {
    const std::string first = first_folder();
    std::vector<RankFile> files;
    files.push_back(open_rank(folder_, first, {}));
    const PickleValue root = files.front().content.root();
    const auto args = root.find("args");
    const PickleValue none{};
    const PickleValue& of = args ? *args : none;
    sizes_ = {.tp = integer_arg(of, "tensor_model_parallel_size"),
              .pp = integer_arg(of, "pipeline_model_parallel_size"),
              .ep = integer_arg(of, "expert_model_parallel_size")};
    for (std::int64_t pp = 0; pp < sizes_.pp; ++pp)
      for (std::int64_t tp = 0; tp < sizes_.tp; ++tp)
        for (std::int64_t ep = 0; ep < sizes_.ep; ++ep) {
          const Coordinates at{.tp = tp, .pp = pp, .ep = ep};
          const std::string name = file_name(at, sizes_);
          if (name != first) files.push_back(open_rank(folder_, name, at));
        }
    for (const RankFile& file : files) read_models(file);
    describe(root, (folder_ / files.front().name).string());
    manifest_.optimizer.reset();
    manifest_.no_optimizer =
        "the states in files of ranks have no names: save in Megatron-LM's torch_dist format";
  }

  FolderDescription(fs::path folder, const PickleValue& state,
                    const std::vector<RankTensors>& ranks)
      : folder_(std::move(folder)), sizes_{.tp = std::ssize(ranks), .pp = 1, .ep = 1} {
    for (const RankTensors& tensors : ranks) {
      Chunk& chunk = chunks_.emplace_back(Chunk{.at = {.tp = std::ssize(chunks_)}});
      for (const auto& [name, tensor] : tensors) add_local(name, tensor, chunk.tensors);
    }
    describe(state, folder_.string());
  }

  Manifest take() { return std::move(manifest_); }

 private:
  std::string first_folder() const {
    for (const char* name : {"mp_rank_00", "mp_rank_00_000", "mp_rank_00_000_000"})
      if (model_file(folder_, name)) return name;
    throw UserError({folder_.string() + ": there is no mp_rank_00", "", "check the path"});
  }

  /// A model of a rank: a rank of an interleaved schedule has several.
  struct Chunk {
    Coordinates at = {};
    std::string file = {};  ///< that holds it; "" for several
    std::int64_t number = 0;
    std::vector<LocalTensor> tensors = {};
  };

  void read_models(const RankFile& file) {
    const PickleValue& root = file.content.root();
    const auto add = [&](const PickleValue& model, std::int64_t number) {
      Chunk& chunk = chunks_.emplace_back(Chunk{file.at, file.name, number});
      for (const auto& [name, tensor] : file.content.tensors(model))
        add_local(name,
                  whole_tensor(tensor, file.name,
                               (folder_ / file.name).string() + ": tensor '" + name + "'"),
                  chunk.tensors);
    };
    for (const char* key : {"model", "module"})
      if (const auto model = root.find(key)) return add(*model, 0);
    for (std::int64_t i = 0;; ++i) {
      const auto model = root.find("model" + std::to_string(i));
      if (!model) break;
      add(*model, i);
    }
  }

  void describe(const PickleValue& root, const std::string& source) {
    if (const auto version = root.find("checkpoint_version");
        version && !version->is(PickleKind::none))
      version_ = version->real("checkpoint_version");
    number_layers();
    declared_ = describe_saved_args(root, vocab_rows(), source, manifest_);
    for (const Chunk& chunk : chunks_)
      for (const LocalTensor& local : chunk.tensors) place(chunk, local);
  }

  /// Layers are numbered through the stages of the first chunks, then of the second, …
  void number_layers() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts;
    for (const Chunk& chunk : chunks_)
      for (const LocalTensor& local : chunk.tensors)
        if (local.layer) {
          std::int64_t& count = counts[{chunk.number, chunk.at.pp}];
          count = std::max(count, *local.layer + 1);
        }
    std::int64_t first = 0;
    for (const auto& [place, count] : counts)
      first_layers_[place] = std::exchange(first, first + count);
  }

  std::int64_t vocab_rows() const {
    for (const Chunk& chunk : chunks_)
      for (const LocalTensor& local : chunk.tensors)
        if (local.name == kEmbedding && !local.tensor.shape.empty())
          return local.tensor.shape.front() * sizes_.tp;
    throw UserError({folder_.string() + ": there is no " + std::string(kEmbedding), "",
                     "load a checkpoint of a language model"});
  }

  /// Returns the name in the whole model.
  std::string full_name(const Chunk& chunk, const LocalTensor& local) const {
    if (!local.layer) return declared_.our_name(local.name);
    const std::int64_t layer = *local.layer + first_layers_.at({chunk.number, chunk.at.pp});
    return declared_.our_name(std::string(kLayers) + std::to_string(layer) + "." + local.name);
  }

  void place(const Chunk& chunk, const LocalTensor& local) {
    const std::string name = full_name(chunk, local),
                      file = (chunk.file.empty() ? folder_ : folder_ / chunk.file).string(),
                      where = file + ": tensor '" + name + "'";
    const auto found = declared_.shardings.find(name);
    if (found == declared_.shardings.end()) {
      if (name == "output_layer.weight" && !declared_.has_own_output) return;
      throw UserError(
          {where, "the model has no such parameter", "check the args of the checkpoint"});
    }
    Sharding sharding = found->second;
    std::vector<Axis> axes{{.name = "tp", .rank = chunk.at.tp, .size = sizes_.tp}};
    if (sharding.splits.size() == 2) {  // ep and etp, of which each file holds one expert
      const std::int64_t experts = sharding.global_shape.front(), per_rank = experts / sizes_.ep;
      const std::int64_t expert = local.expert.value_or(0) + chunk.at.ep * per_rank;
      axes.insert(axes.begin(), {.name = "ep", .rank = expert, .size = experts});
    } else if (chunk.at.ep > 0) {
      return;  // every rank of ep has it
    }
    // Megatron-LM's own layers split the projections to latents, those of Transformer Engine do
    // not.
    const Shape& whole = sharding.global_shape;
    const bool is_whole =
        sharding.splits.empty() || (sharding.splits.size() == 1 && sharding.splits.front().dim < 0);
    if (is_whole && sizes_.tp > 1 && !local.tensor.shape.empty() &&
        local.tensor.shape.front() * sizes_.tp == whole.front())
      sharding.splits = {AxisSplit{.dim = 0}};
    for (AxisSplit& split : sharding.splits)
      if (split.pad_multiple > 0) split.pad_multiple = 1;
    Shape local_shape = sharding.local_shape(axes);
    Shape stored = local.tensor.shape;
    if (local.expert) stored.insert(stored.begin(), 1);
    if (stored != local_shape)
      throw UserError({where + ": " + shape_text(stored), "expected " + shape_text(local_shape),
                       "check the args of the checkpoint"});
    const bool is_old_qkv = version_ < 2 && name.find(".linear_qkv.") != std::string::npos &&
                            name.find("layer_norm") == std::string::npos;
    if (const Json& model = *manifest_.model;
        is_old_qkv && model.at("num_query_groups") != model.at("num_attention_heads"))
      throw UserError({where, format("checkpoint_version %g has no query groups", version_),
                       "save it with a newer Megatron-LM, which writes checkpoint_version 3"});
    std::vector<TensorSlice> slices;
    for (const TensorSlice& slice : sharding.owned_slices(axes))
      for (const TensorSlice& part :
           is_old_qkv ? old_qkv_slices(slice, version_, declared_.head_size) : std::vector{slice})
        slices.push_back(part);
    MEGATRON_CHECK(
        add_rank_tensor(name, local.tensor, local_shape, slices, declared_, where, manifest_),
        "a slice of a file has gaps");
  }

  const fs::path folder_;
  Coordinates sizes_;
  double version_ = 0;
  std::vector<Chunk> chunks_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> first_layers_;  ///< by chunk, stage
  DeclaredTensors declared_;
  Manifest manifest_;
};

}  // namespace

bool is_mp_rank_folder(const fs::path& folder) {
  for (const char* name : {"mp_rank_00", "mp_rank_00_000", "mp_rank_00_000_000"})
    if (model_file(folder, name)) return true;
  return false;
}

Manifest describe_mp_rank(const fs::path& folder) { return FolderDescription(folder).take(); }

Manifest describe_rank_models(const fs::path& folder, const PickleValue& state,
                              const std::vector<RankTensors>& ranks) {
  return FolderDescription(folder, state, ranks).take();
}

}  // namespace megatron
