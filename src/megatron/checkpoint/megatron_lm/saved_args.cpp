#include "megatron/checkpoint/megatron_lm/saved_args.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/checkpoint_args.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/formats/pickle_writer.h"
#include "megatron/models/architecture.h"
#include "megatron/models/model_family.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {
namespace {

constexpr int kMaxDepth = 8;
constexpr const char* kLayerFreq = "moe_layer_freq";

/// Returns a value as flags have it; nullopt for values of other kinds.
std::optional<std::string> value_text(const PickleValue& value) {
  switch (value.kind()) {
    case PickleKind::boolean:
      return value.boolean("") ? "true" : "false";
    case PickleKind::integer:
      return std::to_string(value.integer(""));
    case PickleKind::real:
      return format("%.17g", value.real(""));
    case PickleKind::text:
      return value.text("");
    default:
      return std::nullopt;
  }
}

/// Returns the args in Megatron-LM's spelling; Megatron-DeepSpeed has some of its own.
CheckpointArgs args_of(const PickleValue& args) {
  CheckpointArgs all;
  for (const auto& [key, value] : args.entries("args")) {
    auto name = value_text(key);
    if (!name || *name == "num_classes") continue;  // Megatron-LM's are those of images
    if (*name == "num_key_value_heads") {
      *name = "num_query_groups";
      all.emplace_back("group_query_attention", std::vector<std::string>{"true"});
    }
    std::vector<std::string> values;
    if (value.is(PickleKind::list) || value.is(PickleKind::tuple)) {
      for (const PickleValue& one : value.items(*name))
        if (auto text = value_text(one)) values.push_back(*std::move(text));
    } else if (auto text = value_text(value)) {
      values.push_back(*std::move(text));
    }
    if (*name == "normalization")
      for (std::string& norm : values)
        norm = norm == "rmsnorm" ? "RMSNorm" : norm == "layernorm" ? "LayerNorm" : norm;
    if (!values.empty()) all.emplace_back(*name, std::move(values));
  }
  return all;
}

/// Returns the first "step" of groups of parameters below a value.
std::optional<std::int64_t> optimizer_step(const PickleValue& value, int depth = 0) {
  if (depth > kMaxDepth) return std::nullopt;
  const bool is_list = value.is(PickleKind::list) || value.is(PickleKind::tuple);
  if (!is_list && !value.is(PickleKind::dict)) return std::nullopt;
  if (const auto step = value.find("step");
      step && (step->is(PickleKind::integer) || step->is(PickleKind::real)))
    return static_cast<std::int64_t>(step->real("step"));
  if (is_list) {
    for (const PickleValue& one : value.items("param_groups"))
      if (const auto step = optimizer_step(one, depth + 1)) return step;
    return std::nullopt;
  }
  for (const char* key : {"param_groups", "optimizer", "state"})
    if (const auto inner = value.find(key))
      if (const auto step = optimizer_step(*inner, depth + 1)) return step;
  return std::nullopt;
}

/// Returns whether the layers are those of Megatron-LM's MambaModel, as its --spec says. Without a
/// pattern they follow from ratios.
bool is_mamba_model(const PickleValue& args) {
  const auto spec = args.find("spec");
  if (!spec || !(spec->is(PickleKind::list) || spec->is(PickleKind::tuple))) return false;
  return std::ranges::any_of(spec->items("spec"), [](const PickleValue& name) {
    return value_text(name).value_or("").find("mamba") != std::string::npos;
  });
}

DeclaredTensors declared_by(const TransformerConfig& model, const std::string& family_name) {
  const ModelFamily& family = find_model_family(family_name);
  DeclaredTensors declared{.shardings = declared_shardings(family, model),
                           .states = {},
                           .head_size = model.kv_channels,
                           .has_own_output = model.untie_embeddings_and_output_weights};
  for (auto& [name, sharding] : declared_shardings(family, model, /*of_states=*/true)) {
    declared.shardings.emplace(name, std::move(sharding));
    declared.states.insert(name);
  }
  return declared;
}

double number(const PickleValue& of, const char* key) {
  const auto found = of.find(key);
  const bool is_number = found && (found->is(PickleKind::integer) || found->is(PickleKind::real));
  return is_number ? found->real(key) : 0;
}

/// Returns a value as argparse would have it. Patterns of layers are numbers or lists of them.
Json arg_value(const Field& field, const Settings& settings) {
  const std::vector<std::string> values = field.get(&settings);
  if (values.empty()) return nullptr;
  if (field.value_name == "N,N") return pair_value(values);
  if (field.name == kLayerFreq || field.name == "no_rope_freq" ||
      field.name == "window_attn_skip_freq" || field.name == "linear_attention_freq") {
    if (const auto period = layer_period(values.front())) return *period;
    if (const auto list = list_expression(values.front())) return *list;
  }
  return typed_values<Json>(field, values);
}

/// Returns the args, each under all of its names.
Json args_of(const CommonState& state, const Settings& settings, const TrainingProgress& progress) {
  Json args = Json::object();
  for (const Field& field : settings_table().set().fields) {
    if (field.is_hidden || field.is_refused) continue;
    const Json value = arg_value(field, settings);
    for (std::string name : field.aliases) {
      std::ranges::replace(name, '-', '_');
      args[name] = value;
    }
    args[field.name] = value;
  }
  const std::int64_t vocab_size = state.source.model.vocab_size;
  args.update({{"vocab_size", vocab_size},
               {"padded_vocab_size", vocab_size},  // padding would be part of the softmax
               {"add_position_embedding", true},
               {"iteration", progress.iteration},
               {"consumed_train_samples", progress.consumed_train_samples},
               {"skipped_train_samples", progress.skipped_train_samples},
               {"consumed_valid_samples", progress.consumed_valid_samples},
               {"ckpt_format", "torch_dist"},
               {"no_save_rng", true},
               {"no_save_optim", !state.has_optimizer},
               {"params_dtype", pickle_global("torch." + dtype_name(state.weight_type))}});
  // Megatron stacks the layers of what it loads unless this is a list.
  if (state.layers_are_alike) args[kLayerFreq] = 1;
  if (state.source.family == "hybrid") {
    args["is_hybrid_model"] = true;
    args["spec"] = {"megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"};
  }
  return args;
}

/// Returns the schedule; nullopt where the settings do not say enough, as those of a release.
std::optional<OptimizerParamScheduler> scheduler_of(const Settings& settings,
                                                    const TrainingProgress& progress) try {
  OptimizerParamScheduler scheduler(make_param_schedule(settings));
  scheduler.set_num_steps(progress.scheduler_num_steps);
  return scheduler;
} catch (const UserError&) {
  return std::nullopt;
}

/// Returns the state of one of Megatron's optimizers without tensors: with expert parallelism it
/// has a second one for parameters of experts. Megatron looks for the groups that it needs.
Json optimizer_state(const OptimizerConfig& config, std::int64_t num_steps,
                     const std::optional<OptimizerParamScheduler>& scheduler, bool is_of_experts) {
  const Json rule =
      config.optimizer == "sgd"
          ? Json{{"momentum", config.sgd_momentum}, {"dampening", 0}, {"nesterov", false}}
          : Json{{"betas", {config.adam_beta1, config.adam_beta2}},
                 {"eps", config.adam_eps},
                 {"bias_correction", true},
                 {"amsgrad", false}};
  Json groups = Json::array();
  for (const double factor : {1.0, 0.0}) {
    for (const bool is_decoupled : {false, true}) {
      Json& group = groups.emplace_back(rule);
      group.update({{"wd_mult", factor},
                    {"lr_mult", 1.0},
                    {"is_expert_parallel", is_of_experts},
                    {"is_decoupled_lr", is_decoupled},
                    {"step", num_steps},
                    {"weight_decay", factor * (scheduler ? scheduler->weight_decay() : 0.0)}});
      if (!scheduler) continue;
      const ParamSchedule& schedule = scheduler->schedule();
      const auto rate = is_decoupled ? scheduler->decoupled_lr() : std::nullopt;
      group["max_lr"] = rate ? *schedule.decoupled_max_lr : schedule.max_lr;
      group["min_lr"] = rate ? schedule.decoupled_min_lr : schedule.min_lr;
      group["lr"] = rate.value_or(scheduler->lr());
    }
  }
  return {{"optimizer", {{"param_groups", std::move(groups)}}},
          {"param_state_sharding_type", "fully_reshardable"}};
}

}  // namespace

std::int64_t saved_count(const PickleValue& of, const char* key) {
  const auto found = of.find(key);
  return found && found->is(PickleKind::integer) ? found->integer(key) : 0;
}

DeclaredTensors describe_settings(Settings& settings, std::int64_t vocab_size, Manifest& manifest) {
  TransformerConfig& model = *settings.model;
  model.vocab_size = vocab_size;
  if (!model.hybrid_layer_pattern.empty()) manifest.family = "hybrid";
  resolve(model);
  manifest.model = architecture_to_json(model);
  manifest.settings = fields_to_json(settings_table().set(), &settings);
  manifest.optimizer = OptimizerRecord{.name = settings.optimizer->optimizer};
  return declared_by(model, manifest.family.empty() ? "gpt" : manifest.family);
}

DeclaredTensors describe_args(const PickleValue& args, std::int64_t vocab_size,
                              const std::string& source, Manifest& manifest) {
  Settings settings = read_checkpoint_args(args_of(args), source);
  TransformerConfig& model = *settings.model;
  if (model.hybrid_layer_pattern.empty() && is_mamba_model(args))
    model.hybrid_layer_pattern =
        allocated_pattern(model.num_layers, model.mamba.attention_ratio, model.mamba.mlp_ratio);
  TrainingProgress& progress = manifest.progress;
  progress.consumed_train_samples = saved_count(args, "consumed_train_samples");
  progress.skipped_train_samples = saved_count(args, "skipped_train_samples");
  progress.consumed_valid_samples = saved_count(args, "consumed_valid_samples");
  return describe_settings(settings, vocab_size, manifest);
}

void describe_optimizer(const PickleValue& state, Manifest& manifest) {
  if (const auto optimizer = state.find("optimizer"))
    manifest.optimizer->num_steps =
        optimizer_step(*optimizer).value_or(manifest.progress.iteration);
  else
    manifest.optimizer.reset();
}

DeclaredTensors describe_saved_args(const PickleValue& state, std::int64_t vocab_size,
                                    const std::string& source, Manifest& manifest) {
  const PickleValue root = state.is(PickleKind::list) && state.items(source).size() == 1
                               ? state.items(source).front()
                               : state;
  const auto args = root.find("args");
  if (!args || args->is(PickleKind::none))
    throw UserError({source + ": it holds no args", "the architecture of its model is not known",
                     "load a checkpoint that Megatron-LM's pretrain scripts saved"});
  DeclaredTensors declared = describe_args(*args, vocab_size, source, manifest);
  TrainingProgress& progress = manifest.progress;
  progress.iteration = saved_count(root, "iteration");
  progress.floating_point_operations = number(root, "num_floating_point_operations_so_far");
  if (const auto schedule = root.find("opt_param_scheduler"))
    progress.scheduler_num_steps = saved_count(*schedule, "num_steps");
  describe_optimizer(root, manifest);
  return declared;
}

Json common_state_of(const CommonState& state) {
  const Manifest* const manifest = state.source.manifest.get();
  const TrainingProgress progress = manifest != nullptr ? manifest->progress : TrainingProgress();
  // Those of the run that saved the source, with the source's architecture and tokenizer.
  Settings settings;
  if (manifest != nullptr) read_saved_settings(*manifest->settings, settings);
  *settings.model = state.source.model;
  *settings.tokenizer = state.source.tokenizer;
  Json common = {{"args", pickle_object("argparse.Namespace", args_of(state, settings, progress))},
                 {"checkpoint_version", 3.0},
                 {"iteration", state.source.iteration},
                 {"num_floating_point_operations_so_far", progress.floating_point_operations},
                 {"content_metadata",
                  {{"distrib_optim_sharding_type", "fully_reshardable"},
                   {"singleton_local_shards", false},
                   {"chained_optim_avoid_prefix", true}}}};
  if (!state.has_optimizer) return common;
  const auto scheduler = scheduler_of(settings, progress);
  if (scheduler) common["opt_param_scheduler"] = scheduler->state();
  const auto optimizer = [&](bool is_of_experts) {
    return optimizer_state(*settings.optimizer, manifest->optimizer->num_steps, scheduler,
                           is_of_experts);
  };
  common["optimizer"] = settings.parallel->expert_model_parallel_size <= 1
                            ? optimizer(false)
                            : pickle_dict({0, optimizer(false), 1, optimizer(true)});
  return common;
}

SafetensorsDtype safetensors_dtype(const TorchDtype& dtype, const std::string& place) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    if (dtype.name == dtype_name(type)) return to_safetensors_dtype(type);
  throw UserError({place + ": dtype " + std::string(dtype.name), "weights do not have it", ""});
}

}  // namespace megatron
