#include "megatron/checkpoint/megatron_lm/nemo.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/checkpoint/megatron_lm/torch_dist.h"
#include "megatron/config/checkpoint_args.h"
#include "megatron/config/config_file.h"
#include "megatron/config/settings.h"

namespace megatron {
namespace {

constexpr const char *kWeights = "weights", *kContext = "context", *kTarget = "_target_";

/// Modules of classes that compute what their settings say, as Megatron-LM does with its args.
constexpr std::string_view kModules = "nemo.collections.llm.gpt.model.";
constexpr std::array<std::string_view, 12> kKnownModules{
    "base",     "llama",     "mistral",    "mixtral",  "qwen2",   "qwen3",
    "nemotron", "starcoder", "starcoder2", "phi3mini", "chatglm", "deepseek"};

/// Settings that our flags have under other names. Those of Llama 3's rotary scaling are NeMo's.
constexpr std::array<std::array<const char*, 2>, 5> kOtherNames{{
    {"seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor"},
    {"scale_factor", "rope_scaling_factor"},
    {"low_freq_factor", "rope_low_freq_factor"},
    {"high_freq_factor", "rope_high_freq_factor"},
    {"old_context_len", "rope_original_max_position_embeddings"},
}};

using Section = std::map<std::string, std::vector<std::string>>;

std::string text_of(const Section& section, const std::string& key) {
  const auto found = section.find(key);
  return found == section.end() || found->second.empty() ? "" : found->second.front();
}

void require_known_class(const std::string& target, const std::string& place) {
  const bool is_theirs = target.starts_with("nemo."), is_gpt = target.starts_with(kModules);
  const std::string module = is_gpt ? target.substr(kModules.size()) : "";
  const std::string name = module.substr(0, module.rfind('.'));
  if (!is_theirs || std::ranges::find(kKnownModules, name) != kKnownModules.end()) return;
  throw UserError({place + ": " + target, "models of this class are not read",
                   "export it with NeMo's llm.export_ckpt(target=\"hf\") and load that folder"});
}

/// Returns the name of an activation function, which is a function of Python there.
std::string activation_of(const Section& function) {
  const std::string target = text_of(function, kTarget);
  const std::string name = target.substr(target.rfind('.') + 1);
  const bool is_tanh = name == "openai_gelu" || text_of(function, "approximate") == "tanh";
  return is_tanh ? "gelu_tanh" : name;
}

/// Returns the settings of a model.yaml as args of Megatron-LM.
CheckpointArgs args_in(const std::string& text, const std::string& place) {
  std::map<std::string, Section> sections;
  for (const FileEntry& entry : parse_nested_yaml(text, place))
    if (!entry.values.empty()) sections[entry.section][entry.key] = entry.values;
  require_known_class(text_of(sections[""], kTarget), place);
  Section& args = sections["config"];
  require_known_class(text_of(args, kTarget), place + ": config");
  for (const char* key : {"num_layers", "hidden_size", "num_attention_heads"})
    if (!args.contains(key))
      throw UserError({place + ": config." + key + " is missing",
                       "the architecture of its model is not known", "copy the whole file"});
  args.merge(sections["optim.config"]);
  if (args.contains("num_query_groups")) args["group_query_attention"] = {"true"};
  if (args.contains("scale_factor")) args["rope_scaling_type"] = {"llama3"};
  // Latent attention's has that of the pretraining, others have none.
  if (const auto length = args.extract("max_position_embeddings"))
    args.try_emplace("original_max_position_embeddings", length.mapped());
  if (args.contains("seq_length")) args["max_position_embeddings"] = args["seq_length"];
  for (const auto& [theirs, ours] : kOtherNames)
    if (const auto setting = args.extract(theirs)) args[ours] = setting.mapped();
  if (const std::string function = activation_of(sections["config.activation_func"]);
      !function.empty())
    args["activation"] = {function};
  const bool is_tied = text_of(args, "share_embeddings_and_output_weights") != "false";
  args["untie_embeddings_and_output_weights"] = {is_tied ? "false" : "true"};
  return {args.begin(), args.end()};
}

/// Returns whether a folder is an unpacked archive of NeMo 1: its weights are in model_weights,
/// model_weights.ckpt, or a file of that name in the folder of each rank.
bool is_nemo_1_folder(const fs::path& folder) {
  if (!fs::exists(folder / "model_config.yaml")) return false;
  return std::ranges::any_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    std::error_code ignored;  // not every folder may be read
    return entry.path().stem() == "model_weights" ||
           fs::exists(entry.path() / "model_weights.ckpt", ignored);
  });
}

}  // namespace

bool is_nemo_folder(const fs::path& folder) {
  return fs::is_directory(folder / kContext) && is_torch_dist_folder(folder / kWeights);
}

bool is_nemo_weights(const fs::path& weights) {
  return weights.filename() == kWeights && fs::is_directory(weights.parent_path() / kContext);
}

void refuse_nemo_1(const fs::path& path, const std::string& flag) {
  const bool is_archive = path.extension() == ".nemo" && !fs::is_directory(path);
  if (!is_archive && (!is_nemo_1_folder(path) || is_nemo_folder(path))) return;
  throw UserError(
      {flag + path.string() + ": an archive of NeMo, or the content of one of NeMo 1",
       "only folders of NeMo 2 are read",
       "convert it with NeMo's scripts/checkpoint_converters/convert_nemo1_to_nemo2.py; "
       "unpack an archive of NeMo 2 with tar -xf"});
}

std::string without_module(std::string name) {
  constexpr std::string_view kModule = "module.";
  for (auto at = name.find(kModule); at != name.npos && (at == 0 || name[at - 1] == '.');
       at = name.find(kModule))
    name.erase(at, kModule.size());
  return name;
}

DeclaredTensors describe_nemo(const fs::path& weights, const PickleValue& state,
                              std::int64_t vocab_size, Manifest& manifest) {
  const fs::path file = weights.parent_path() / kContext / "model.yaml";
  if (!fs::exists(file))
    throw UserError({file.string() + " is missing", "io.json lacks the defaults of its classes",
                     "copy the whole folder, or save it again with a newer NeMo 2"});
  const std::string place = file.string();
  Settings settings = read_checkpoint_args(args_in(read_file(file), place), place);
  DeclaredTensors declared = describe_settings(settings, vocab_size, manifest);
  TrainingProgress& progress = manifest.progress;
  progress.iteration = saved_count(state, "global_step");
  for (const auto& [key, value] : state.entries(weights.string()))
    if (const auto samples = saved_count(value, "consumed_samples"); samples > 0)
      progress.consumed_train_samples = samples;  // in the state of the data module
  progress.scheduler_num_steps = progress.consumed_train_samples;
  describe_optimizer(state, manifest);
  return declared;
}

void add_nemo_tokenizer(CheckpointSource& source) {
  const fs::path folder = source.folder.parent_path();
  source.tokenizer = stored_tokenizer(folder / kContext / "nemo_tokenizer");
  if (source.tokenizer.tokenizer_model.empty())
    source.tokenizer = stored_tokenizer(folder / kContext);
  const std::string& tokenizer = source.tokenizer.tokenizer_model;
  source.notes.push_back(
      folder.string() + " is a checkpoint of NeMo 2, " +
      (tokenizer.empty() ? "without a tokenizer in context/" : "with the tokenizer " + tokenizer));
}

}  // namespace megatron
