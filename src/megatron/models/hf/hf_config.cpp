// Reads and writes config.json by the rows of a family.
#include "megatron/models/hf/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/config_reader.h"

namespace megatron {
namespace {

/// The names of activations. Exports write the first name of each.
constexpr std::array<std::pair<std::string_view, Activation>, 12> kActivations{
    {{"silu", Activation::silu},
     {"swish", Activation::silu},
     {"gelu", Activation::gelu},
     {"gelu_python", Activation::gelu},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_python_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"gelu_accurate", Activation::gelu_tanh},
     {"relu", Activation::relu},
     {"relu2", Activation::squared_relu},
     {"quick_gelu", Activation::quick_gelu}}};

/// Reads a key into its member, which holds the default.
struct MemberReader {
  const ConfigReader& config;
  const MoeConfig& moe;
  const std::string& key;
  const KeyMeaning& meaning;

  void operator()(std::int64_t& size) const {
    const std::string alias(meaning.alias);
    const bool has_alias = !alias.empty() && config.has(alias);
    const std::int64_t most = meaning.most_in != nullptr ? moe.*meaning.most_in : meaning.most;
    size = config.size(has_alias && !config.has(key) ? alias : key, most, size);
    if (has_alias && config.integer(alias, size) != size)
      config.unsupported(alias, key + " says " + std::to_string(size));
  }
  void operator()(double& number) const {
    number = meaning.is_required ? config.number(key) : config.number(key, number);
    using Range = KeyMeaning::Range;
    if (meaning.range == Range::at_least_zero && (!(number >= 0) || !std::isfinite(number)))
      config.unsupported(key, "it must be at least 0");
    if (meaning.range == Range::above_zero && (!(number > 0) || !std::isfinite(number)))
      config.unsupported(key, "it must be above 0");
    if (meaning.range == Range::fraction && !(number >= 0 && number < 1))
      config.unsupported(key, "it must be at least 0 and below 1");
  }
  void operator()(std::optional<double>& number) const {
    if (config.has(key)) (*this)(number.emplace());
    if (meaning.zero_is_none && number == 0) number.reset();
  }
  void operator()(std::vector<double>& list) const { (*this)(list.front()); }
  void operator()(bool& flag) const {
    flag = config.boolean(key, flag != meaning.is_negated) != meaning.is_negated;
  }
  void operator()(Activation& activation) const {
    if (!config.has(key)) return;
    const auto* const found = std::ranges::find(kActivations, config.text(key, ""),
                                                [](const auto& row) { return row.first; });
    if (found == kActivations.end())
      config.unsupported(key, "supported: " + joined_text(kActivations, ", ", [](const auto& row) {
                                return std::string(row.first);
                              }));
    activation = found->second;
  }
};

/// Writes a member.
struct MemberWriter {
  const KeyMeaning& meaning;

  template <class Value>
  Json operator()(const Value& value) const {
    return value;
  }
  Json operator()(const std::optional<double>& number) const {
    return number || meaning.zero_is_none ? Json(number.value_or(0)) : Json();
  }
  Json operator()(bool flag) const { return flag != meaning.is_negated; }
  Json operator()(Activation activation) const {
    return std::ranges::find(kActivations, activation, [](const auto& row) { return row.second; })
        ->first;
  }
};

/// Calls `function` with the member of the model.
template <class Model, class Function>
auto apply_to(const KeyMember& member, Model& model, Function function) {
  return std::visit(
      [&](auto pointer) {
        if constexpr (requires { model.*pointer; })
          return function(model.*pointer);
        else
          return function(model.moe.*pointer);
      },
      member);
}

void reject_unsupported_features(const ConfigReader& config) {
  if (config.has("quantization_config"))
    config.unsupported("quantization_config", "use the unquantised weights");
  for (const char* key :
       {"is_encoder_decoder", "add_cross_attention", "scale_attn_by_inverse_layer_idx"}) {
    if (config.boolean(key, false)) config.unsupported(key, "only false is");
  }
}

[[noreturn]] void cannot_express(const std::string& model_type, const std::string& got) {
  throw UserError(
      {"the model cannot be written as Hugging Face model_type '" + model_type + "'", got, ""});
}

/// Throws UserError unless the written config.json reads back as the same forward function.
void check_expressed(const TransformerConfig& model, const HfFamily& family, const Json& json,
                     const HfFamilies& families) {
  const std::string& type = family.model_type;
  const auto differences =
      forward_differences(model, parse_hf_config(json, type + " config.json", families).model);
  if (!differences.empty())
    cannot_express(type, joined_text(differences, ", ", [&](const ArchitectureDifference& d) {
                     return d.member + " = " + d.left + " (" + type + ": " + d.right + ")";
                   }));
  if (family.needs_even_heads && model.hidden_size % model.num_attention_heads != 0)
    cannot_express(type, "hidden_size is not a multiple of num_attention_heads");
}

/// Returns whether the original config.json already describes the model, so that its spelling may
/// stay.
bool is_equivalent(const HfConfig& there, const TransformerConfig& model) {
  for (const auto& [name, origin] : there.given_training_fields) {
    const Field& field = *training_members().set().find_name(name);
    if (origin != kFamilyHasNone && field.get(&there.model) != field.get(&model)) return false;
  }
  return there.model.max_position_embeddings == model.max_position_embeddings &&
         forward_differences(there.model, model).empty();
}

void write_model(const TransformerConfig& model, const HfFamily& family, Json& json) {
  TransformerConfig full = canonical_architecture(model);
  full.max_position_embeddings = model.max_position_embeddings;
  json["model_type"] = family.model_type;
  write_keys(family.keys, full, json);
}

/// Uses the spelling that the file has: "dtype" since transformers 4.56, "torch_dtype" before.
void write_dtype(std::string_view dtype, Json& json) {
  const bool old_only = json.contains("torch_dtype") && !json.contains("dtype");
  if (!old_only) json["dtype"] = std::string(dtype);
  if (json.contains("torch_dtype")) json["torch_dtype"] = std::string(dtype);
}

}  // namespace

void read_keys(const KeyRows& rows, const ConfigReader& config, HfConfig& result) {
  for (const KeyRow& row : rows) {
    if (row.read) row.read(config, result);
    if (!row.member) continue;
    apply_to(*row.member, result.model,
             MemberReader{config, result.model.moe, row.key, row.meaning});
    if (!row.meaning.trains.empty())
      result.given_training_fields[std::string(row.meaning.trains)] = config.origin(row.key);
  }
}

void write_keys(const KeyRows& rows, const TransformerConfig& model, Json& json) {
  for (const KeyRow& row : rows) {
    if (row.write) row.write(model, json);
    if (!row.member || row.write) continue;
    json[row.key] = apply_to(*row.member, model, MemberWriter{row.meaning});
    const std::string alias(row.meaning.alias);
    if (json.contains(alias)) json[alias] = json[row.key];
  }
}

HfConfig parse_hf_config(const Json& json, const std::string& source, const HfFamilies& families) {
  const ConfigReader config(json, source);
  const std::string model_type = JsonCursor(json, source)["model_type"].text();
  reject_unsupported_features(config);
  const HfFamily* family = find_hf_family(families, model_type);
  if (family == nullptr) {
    config.unsupported("model_type",
                       "supported: " + joined_text(families, ", ", &HfFamily::model_type));
  }
  HfConfig result{.model = family->defaults, .model_type = model_type};
  read_keys(family->keys, config, result);
  result.given_training_fields.emplace("hidden_dropout", kFamilyHasNone);
  check_sizes(result.model, source);
  return result;
}

Json make_hf_config(const TransformerConfig& model, std::string_view model_type,
                    std::string_view dtype, const Json* original, const HfFamilies& families) {
  const HfFamily* family = find_hf_family(families, model_type);
  MEGATRON_CHECK(family != nullptr, "no family of model_type ", model_type);
  const bool same = original != nullptr && original->value("model_type", "") == model_type;
  Json json = same ? *original
                   : Json{{"architectures", {family->architecture}},
                          {"bos_token_id", nullptr},
                          {"eos_token_id", nullptr},
                          {"use_cache", true}};
  if (!same || !is_equivalent(parse_hf_config(json, "config.json", families), model))
    write_model(model, *family, json);
  write_dtype(dtype, json);
  check_expressed(model, *family, json, families);
  return json;
}

}  // namespace megatron
