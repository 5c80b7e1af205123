#include "megatron/checkpoint/megatron_lm/deepspeed.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/division.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/name_list.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/checkpoint/megatron_lm/mp_rank.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/config/resolve.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/weight_map.h"

namespace megatron {
namespace {

constexpr const char *kModelFile = "model_states.pt", *kShardFile = "_optim_states.pt",
                     *kShapes = "param_shapes", *kOptimizer = "optimizer_state_dict",
                     *kCopyAll = "copy the whole folder";

struct File {
  std::string name, place;
  TorchFile content;
};

/// Names of files by model-parallel rank and data-parallel rank.
using FileNames = std::map<std::pair<std::size_t, std::size_t>, std::string>;

struct Files {
  FileNames models, shards;
  FileNames layers;  ///< by tensor-parallel rank and module of the pipeline
};

/// The elements of a tensor, and of its states by their prefix, or those of a flat buffer that has
/// several tensors.
using States = std::map<std::string, StoredElements>;

/// Returns the number behind a mark in a file's name; 0 if there is none.
std::size_t number_behind(const std::string& name, std::string_view mark) {
  const auto place = name.find(mark);
  const std::string digits = place == std::string::npos ? "" : name.substr(place + mark.size());
  const auto number = small_number(digits.substr(0, digits.find_first_not_of("0123456789")));
  return static_cast<std::size_t>(number.value_or(0));
}

Files find_files(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_model = name.ends_with(kModelFile), is_layer = name.starts_with("layer_");
    if (!is_model && !name.ends_with(kShardFile)) continue;
    FileNames& names = !is_model ? files.shards : is_layer ? files.layers : files.models;
    names[{number_behind(name, is_layer ? "-model_" : "mp_rank_"),
           number_behind(name, is_layer ? "layer_" : "pp_rank_")}] = name;
  }
  return files;
}

/// Opens the files of one model-parallel rank.
std::vector<File> open_files(const fs::path& folder, const FileNames& names, std::size_t rank) {
  std::vector<File> files;
  for (const auto& [key, name] : names) {
    const std::string place = (folder / name).string();
    if (name.find("expert_") != std::string::npos || name.starts_with("expp_rank_"))
      throw UserError({place + ": experts of DeepSpeed are not read", "",
                       "load a checkpoint of a dense model"});
    if (key.first == rank) files.push_back({name, place, open_torch_file(place)});
  }
  return files;
}

/// Appends the elements of each state to those of a buffer. All parts must have the same states.
void append(const States& more, const std::string& place, States& all) {
  for (const auto& [state, elements] : more)
    all[state].append(elements, 0, elements.count(), place);
  for (const auto& [state, elements] : all)
    if (elements.count() != all.at("").count())
      throw UserError({place + ": only some of its shards have '" + state + "'", "", kCopyAll});
}

/// Returns a tensor, of which each buffer has an equal share from its element `begin` on.
RankTensor joined_shares(const std::vector<States>& buffers, std::int64_t begin, Shape shape,
                         const std::string& place) {
  const auto count = checked_num_elements(shape);
  if (!count) throw UserError({place + ": its shape is impossible", shape_text(shape), kCopyAll});
  const std::int64_t share = ceil_div(*count, std::ssize(buffers));
  RankTensor tensor{.shape = std::move(shape)};
  for (std::int64_t first = 0; const States& buffer : buffers) {
    const std::int64_t size = std::clamp<std::int64_t>(*count - first, 0, share);
    for (const auto& [state, elements] : buffer)
      tensor.states[state].append(elements, begin, size, place);
    first += share;
  }
  return tensor;
}

/// Returns the state of a group's flat parameter in the state dict of a PyTorch optimizer, or in
/// the list that elastic checkpoints have in its place.
PickleValue group_state(const PickleValue& optimizer, std::size_t group) {
  if (optimizer.is(PickleKind::list))
    return group < optimizer.items("").size() ? optimizer.items("")[group] : PickleValue();
  const auto state = optimizer.find("state");
  for (const auto& [key, value] : state ? state->entries("state") : std::vector<PickleEntry>())
    if (key.is(PickleKind::integer) && key.integer("") == static_cast<std::int64_t>(group))
      return value;
  return {};
}

/// Returns the flat groups of parameters of a shard.
std::vector<States> groups_of(const File& file) {
  const PickleValue optimizer = file.content.root().at(kOptimizer, file.place);
  const auto flat = optimizer.find("fp32_flat_groups");
  const PickleValue groups =
      flat ? *flat : optimizer.at("single_partition_of_fp32_groups", file.place);
  const PickleValue states = optimizer.find(flat ? "optimizer_state_dict" : "base_optimizer_state")
                                 .value_or(PickleValue());
  std::vector<States> all;
  for (const PickleValue& group : groups.items(file.place)) {
    const auto weights = file.content.tensor(group);
    if (!weights) throw UserError({file.place + ": a group is no tensor", "", ""});
    const PickleValue state = group_state(states, all.size());
    States& own = all.emplace_back();
    own[""] = stored_elements(*weights, file.name, file.place);
    for (const char* name : {"exp_avg", "exp_avg_sq", "momentum_buffer"})
      if (const auto value = state.find(name))
        if (const auto tensor = file.content.tensor(*value);
            tensor && tensor->num_elements() >= weights->num_elements())
          own[std::string(name) + "."].append(stored_elements(*tensor, file.name, file.place), 0,
                                              weights->num_elements(), file.place);
  }
  return all;
}

/// Throws a UserError unless the shards are those of all data-parallel ranks of the run.
void require_ranks(const std::vector<File>& shards, const PickleValue& optimizer) {
  const auto given = optimizer.find("partition_count");
  if (!given) return;
  const auto counts = given->is(PickleKind::integer) ? std::vector{given->integer("")}
                                                     : given->integers("partition_count");
  const std::int64_t wanted = counts.empty() ? 1 : std::ranges::max(counts);
  if (std::ssize(shards) != wanted ||
      static_cast<std::int64_t>(number_behind(shards.back().name, "pp_rank_")) + 1 != wanted)
    throw UserError({shards.front().place + " is one of " + std::to_string(shards.size()),
                     "the run had " + std::to_string(wanted) + " data-parallel ranks", kCopyAll});
}

/// Adds what the shards of a model-parallel rank have. `model` is one of its other files.
void add_shards(const std::vector<File>& files, const File& model, RankTensors& all) {
  const PickleValue first = files.front().content.root().at(kOptimizer, files.front().place);
  const auto paddings = first.find("param_alignment_paddings");
  const bool is_stage_3 = first.find("fp32_flat_groups").has_value(),
             has_paddings = !is_stage_3 && paddings && paddings->is(PickleKind::list);
  require_ranks(files, first);
  std::vector<std::vector<States>> shards;  // the groups of each rank
  for (const File& file : files) shards.push_back(groups_of(file));
  // Stage 3 divides each parameter among the ranks, the others divide a buffer of each group.
  std::vector<States> buffers;
  for (const auto& groups : shards)
    for (States& buffer = buffers.emplace_back(States{{"", {}}}); const States& group : groups)
      append(group, model.place, buffer);
  std::int64_t begin = 0;
  std::size_t index = 0;  // of the group
  for (const PickleValue& shapes : model.content.root().at(kShapes, model.place).items(kShapes)) {
    if (!is_stage_3) {
      begin = 0;
      buffers.assign(1, States{{"", {}}});
      for (const auto& groups : shards)
        if (index < groups.size()) append(groups[index], model.place, buffers.front());
    }
    std::vector<std::int64_t> padding;  // behind each parameter
    if (has_paddings && index < paddings->items("").size())
      padding = paddings->items("")[index].integers("param_alignment_paddings");
    std::size_t position = 0;
    for (const auto& [key, value] : shapes.entries(kShapes)) {
      const std::string name = key.text(kShapes);
      RankTensor tensor = joined_shares(buffers, begin, value.integers(kShapes),
                                        model.place + ": tensor '" + name + "'");
      begin += ceil_div(num_elements(tensor.shape), std::ssize(buffers));
      if (position < padding.size()) begin += padding[position++];
      all.emplace(name, std::move(tensor));
    }
    ++index;
  }
}

/// Adds the weights that were not trained. Each file of stage 3 has a share.
void add_frozen(const std::vector<File>& models, RankTensors& all) {
  const auto shapes = models.front().content.root().find("frozen_param_shapes");
  if (!shapes || !shapes->is(PickleKind::dict)) return;
  for (const auto& [key, value] : shapes->entries(kShapes)) {
    const std::string name = key.text(kShapes),
                      place = models.front().place + ": tensor '" + name + "'";
    std::vector<States> buffers;
    for (const File& file : models) {
      const PickleValue fragments = file.content.root().at("frozen_param_fragments", place);
      const auto tensor = file.content.tensor(fragments.at(name, place));
      if (!tensor) throw UserError({place + " is no tensor", "", ""});
      buffers.push_back({{"", stored_elements(*tensor, file.name, place)}});
    }
    RankTensor& tensor = all[name];
    tensor = joined_shares(buffers, 0, value.integers(kShapes), place);
    tensor.is_frozen = true;
  }
}

/// Adds tensors that no shard has. Stage 3 has empty ones in place of weights.
void add_plain(const File& file, const PickleValue& module, const std::string& prefix,
               RankTensors& all) {
  for (const auto& [name, tensor] : file.content.tensors(module))
    if (!all.contains(prefix + name) && tensor.num_elements() > 0 &&
        tensor.dtype.name.find("float") != std::string_view::npos)
      all.emplace(prefix + name, whole_tensor(tensor, file.name, file.place));
}

bool is_embedding(const std::string& key) { return key.find("_embeddings.") != std::string::npos; }

/// Returns the tensors of a pipeline under the names that they have without one. It numbers layers
/// through all modules ("3.mlp.…"), and several stages have the embedding ("tied_modules.embed.…").
RankTensors without_stages(const RankTensors& all) {
  std::map<std::pair<std::int64_t, std::string>, const RankTensor*> modules;
  RankTensors named;
  for (const auto& [name, tensor] : all)
    if (const auto module = small_number(name.substr(0, name.find('.'))))
      modules[{*module, name.substr(name.find('.') + 1)}] = &tensor;
  std::int64_t last = -1, num_layers = 0;  // the module of the last layer
  for (const auto& [place, tensor] : modules) {
    const auto& [module, key] = place;
    std::string name = "encoder.final_layernorm." + key;
    if (key == "lm_head.weight" || (is_embedding(key) && num_layers > 0)) {
      name = "output_layer.weight";
    } else if (is_embedding(key)) {
      name = "embedding." + key;
    } else if (key.find('.') != std::string::npos) {
      if (std::exchange(last, module) != module) ++num_layers;
      name = "encoder.layers." + std::to_string(num_layers - 1) + "." + key;
    }
    named[name] = *tensor;
  }
  for (const auto& [name, tensor] : all)
    if (name.starts_with("tied_modules.") && is_embedding(name))
      named["embedding." + name.substr(name.find('.', 13) + 1)] = tensor;
  return named;
}

/// Places a tensor of a Hugging Face model in a parameter of ours.
void place_tensor(const HfTensor& theirs, const RankTensor& tensor, const std::string& ours,
                  const DeclaredTensors& declared, const std::string& where, Manifest& manifest) {
  const TensorPart& part = theirs.part;
  const Sharding& sharding = declared.shardings.at(ours);
  Shape shape = part.shape(sharding);
  if (shape != tensor.shape)
    throw UserError({where + ": " + shape_text(tensor.shape), "expected " + shape_text(shape),
                     "check that config.json belongs to these weights"});
  const bool is_in_order = !part.is_interleaved && (!part.is_transposed || shape.size() < 2);
  if (part.is_row) shape.erase(shape.begin());
  if (part.expert) shape.insert(shape.begin(), 1);
  if (!is_in_order ||
      !add_rank_tensor(ours, tensor, shape, part.slices(sharding), declared, where, manifest))
    throw UserError({where, "its elements have another order here",
                     "convert it with DeepSpeed's zero_to_fp32.py and save_pretrained()"});
}

/// Describes a Hugging Face model whose config.json is in `home`. `root` is the content of a file.
Manifest describe_hugging_face(const fs::path& folder, const fs::path& home,
                               const PickleValue& root, const RankTensors& tensors) {
  const std::string source = (home / "config.json").string();
  const HfConfig config = parse_hf_config(parse_python_json(read_file(source), source), source);
  const HfFamily& family = *find_hf_family(config.model_type);
  TransformerConfig model = config.model;
  resolve(model);
  Manifest manifest;
  manifest.model = architecture_to_json(model);
  manifest.settings = Json::object();
  manifest.family = family.network;
  manifest.model_type = config.model_type;
  for (const auto& [name, text] : read_auxiliary_files(home))
    manifest.files[home == folder ? name : "../" + name] = checksum(text);
  RankTensors theirs;
  for (const auto& [name, tensor] : tensors) theirs.emplace(full_hf_name(family, name), tensor);
  const DeclaredTensors declared{.shardings =
                                     declared_shardings(find_model_family(family.network), model)};
  std::vector<std::string> names, missing, unused;
  for (const auto& [name, sharding] : declared.shardings) names.push_back(name);
  std::set<std::string> used{family.output_layer};
  // Names of tensors that have another name too.
  if (const auto shared = root.find("shared_params"); shared && shared->is(PickleKind::dict))
    for (const auto& [name, source] : shared->entries("")) used.insert(name.text("shared_params"));
  for (const WeightMapping& link :
       map_weights(family, names, model.moe.num_experts,
                   {model.num_layers, model.mtp_num_layers, model.gated_linear_unit, &model})) {
    const bool is_other =
        !link.alternatives.empty() && theirs.contains(link.alternatives.front().name);
    for (const HfTensor& tensor : is_other ? link.alternatives : link.theirs) {
      used.insert(tensor.name);
      const auto found = theirs.find(tensor.name);
      if (found == theirs.end())
        missing.push_back(tensor.name);
      else
        place_tensor(tensor, found->second, link.ours, declared,
                     folder.string() + ": tensor '" + tensor.name + "'", manifest);
    }
  }
  for (const auto& [name, tensor] : theirs)
    if (!used.contains(name) && !is_hf_buffer(family, name)) unused.push_back(name);
  require_same_names(folder.string() + ": its weights are not those of " + source, missing, unused,
                     "check that config.json belongs to these weights");
  return manifest;
}

/// Adds what DeepSpeed's engine counts, where the args do not say it, and the optimizer.
void add_progress(const PickleValue& root, Manifest& manifest) {
  TrainingProgress& progress = manifest.progress;
  const std::int64_t num_steps = saved_count(root, "global_steps");
  if (progress.iteration == 0) progress.iteration = num_steps;
  if (progress.consumed_train_samples == 0)
    progress.consumed_train_samples = saved_count(root, "global_samples");
  if (progress.scheduler_num_steps == 0)
    progress.scheduler_num_steps = progress.consumed_train_samples;
  manifest.optimizer.reset();
  manifest.no_optimizer = "its shards have no state of Adam or of SGD with momentum";
  for (const auto& [state, name] :
       {std::pair("exp_avg_sq.", "adam"), std::pair("momentum_buffer.", "sgd")})
    if (std::ranges::any_of(manifest.tensors,
                            [&](const auto& one) { return one.first.starts_with(state); }))
      manifest.optimizer = OptimizerRecord{
          .name = name, .num_steps = num_steps - saved_count(root, "skipped_steps")};
}

}  // namespace

bool is_deepspeed_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  const Files files = find_files(folder);
  return !files.models.empty() || !files.shards.empty();
}

std::optional<fs::path> find_deepspeed_folder(const fs::path& root,
                                              std::optional<std::int64_t> step) {
  if (!fs::is_regular_file(root / "latest")) return std::nullopt;
  const fs::path folder = root / (step ? "global_step" + std::to_string(*step)
                                       : trim(read_file(root / "latest", 4096)));
  return is_deepspeed_folder(folder) ? std::optional(folder) : std::nullopt;
}

Manifest describe_deepspeed(const fs::path& folder) {
  const Files files = find_files(folder);
  const auto num_ranks = [](const FileNames& names) {
    return names.empty() ? 0 : names.rbegin()->first.first + 1;
  };
  const std::size_t num_mp = std::max(num_ranks(files.models), num_ranks(files.shards)),
                    num_tp = files.layers.empty() ? num_mp : num_ranks(files.layers);
  std::vector<RankTensors> ranks(num_tp);
  std::vector<File> lead;  // the files of the first rank
  for (std::size_t mp = 0; mp < num_mp; ++mp) {
    std::vector<File> models = open_files(folder, files.models, mp);
    if (models.empty())
      throw UserError({folder.string() + ": files *" + kModelFile + " are missing", "", kCopyAll});
    const File& model = models.front();
    RankTensors& all = ranks[mp % num_tp];
    if (const auto shards = open_files(folder, files.shards, mp); !shards.empty())
      add_shards(shards, model, all);
    add_frozen(models, all);
    if (const auto module = model.content.root().find("module")) add_plain(model, *module, "", all);
    if (lead.empty()) lead = std::move(models);
  }
  for (std::size_t tp = 0; tp < num_tp && !files.layers.empty(); ++tp) {
    for (const File& file : open_files(folder, files.layers, tp))
      add_plain(file, file.content.root(), std::to_string(number_behind(file.name, "layer_")) + ".",
                ranks[tp]);
    ranks[tp] = without_stages(ranks[tp]);
  }
  const PickleValue& root = lead.front().content.root();
  const auto args = root.find("args");
  const bool has_args = args && !args->is(PickleKind::none);
  const fs::path home =
      looks_like_hf_directory(folder) ? folder : fs::absolute(folder).parent_path();
  if (!has_args && (!looks_like_hf_directory(home) || num_tp > 1 || !files.layers.empty()))
    throw UserError({lead.front().place + ": it holds no args of Megatron-DeepSpeed",
                     "the architecture of its model is not known",
                     "for a Hugging Face model, copy its config.json into " + folder.string()});
  Manifest manifest = has_args ? describe_rank_models(folder, root, ranks)
                               : describe_hugging_face(folder, home, root, ranks.front());
  add_progress(root, manifest);
  return manifest;
}

}  // namespace megatron
