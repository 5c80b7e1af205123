#include "megatron/checkpoint/megatron_lm/saved_args.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/config/checkpoint_args.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/architecture.h"
#include "megatron/models/model_family.h"

namespace megatron {
namespace {

constexpr int kMaxDepth = 8;

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
    if (!name) continue;
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

DeclaredTensors declared_by(const TransformerConfig& model) {
  const ModelFamily& family = library_families().all().front();
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

}  // namespace

std::int64_t saved_count(const PickleValue& of, const char* key) {
  const auto found = of.find(key);
  return found && found->is(PickleKind::integer) ? found->integer(key) : 0;
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
  Settings settings = read_checkpoint_args(args_of(*args), source);
  TransformerConfig& model = *settings.model;
  model.vocab_size = vocab_size;
  resolve(model);
  manifest.model = architecture_to_json(model);
  manifest.settings = fields_to_json(settings_table().set(), &settings);
  TrainingProgress& progress = manifest.progress;
  progress.iteration = saved_count(root, "iteration");
  progress.consumed_train_samples = saved_count(*args, "consumed_train_samples");
  progress.skipped_train_samples = saved_count(*args, "skipped_train_samples");
  progress.consumed_valid_samples = saved_count(*args, "consumed_valid_samples");
  progress.floating_point_operations = number(root, "num_floating_point_operations_so_far");
  if (const auto schedule = root.find("opt_param_scheduler"))
    progress.scheduler_num_steps = saved_count(*schedule, "num_steps");
  if (const auto optimizer = root.find("optimizer"))
    manifest.optimizer =
        OptimizerRecord{.name = settings.optimizer->optimizer,
                        .num_steps = optimizer_step(*optimizer).value_or(progress.iteration)};
  return declared_by(model);
}

SafetensorsDtype safetensors_dtype(const TorchDtype& dtype, const std::string& place) {
  constexpr std::array<std::pair<std::string_view, SafetensorsDtype>, 4> kTypes{
      {{"float32", SafetensorsDtype::F32},
       {"bfloat16", SafetensorsDtype::BF16},
       {"float16", SafetensorsDtype::F16},
       {"float64", SafetensorsDtype::F64}}};
  for (const auto& [name, type] : kTypes)
    if (dtype.name == name) return type;
  throw UserError({place + ": dtype " + std::string(dtype.name), "weights do not have it", ""});
}

}  // namespace megatron
