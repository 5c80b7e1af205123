#include "megatron/models/hf/key_rows.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/base/words.h"
#include "megatron/config/setting.h"
#include "megatron/models/hf/config_reader.h"

namespace megatron {
namespace {

/// The names of activations. Exports write the first name of each.
constexpr std::array<std::pair<std::string_view, Activation>, 12> kActivations{
    {{"silu", Activation::silu},
     {"swish", Activation::silu},
     {"gelu", Activation::gelu},
     {"gelu_python", Activation::gelu},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_python_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"gelu_accurate", Activation::gelu_tanh},
     {"relu", Activation::relu},
     {"relu2", Activation::squared_relu},
     {"quick_gelu", Activation::quick_gelu}}};

/// Reads a key into its member, which holds the default.
struct MemberReader {
  const ConfigReader& config;
  const TransformerConfig& model;
  const std::string& key;
  const KeyMeaning& meaning;

  void operator()(std::int64_t& size) const {
    const std::string alias(meaning.alias);
    const bool has_alias = !alias.empty() && config.has(alias);
    const std::int64_t most =
        meaning.most_in != nullptr ? model.moe.*meaning.most_in : meaning.most;
    if (meaning.divides != nullptr && (size == 0 || config.is_null(key)))
      size = model.*meaning.divides;
    size = config.size(has_alias && !config.has(key) ? alias : key, most, size);
    if (has_alias && config.integer(alias, size) != size)
      config.unsupported(alias, key + " says " + std::to_string(size));
    if (meaning.divides != nullptr && model.*meaning.divides % size != 0)
      config.unsupported(key, Setting(meaning.divides).name() + " must be a multiple of it, here " +
                                  std::to_string(size));
  }
  void operator()(double& number) const {
    number = config.number(key, meaning.is_required ? std::nullopt : std::optional(number));
    const NumberRange& range = meaning.range;
    if (range.contains != nullptr && !range.contains(number)) config.unsupported(key, range.words);
  }
  void operator()(std::optional<double>& number) const {
    if (config.is_null(key)) number.reset();
    if (config.has(key)) (*this)(number.emplace());
    if (meaning.zero_is_none && number == 0) number.reset();
  }
  void operator()(std::vector<double>& list) const { (*this)(list.front()); }
  void operator()(bool& flag) const {
    flag = config.boolean(key, flag != meaning.is_negated) != meaning.is_negated;
  }
  void operator()(Activation& activation) const {
    if (!config.has(key)) return;
    const auto name_of = [](const auto& row) { return std::string(row.first); };
    const auto* const found = std::ranges::find(kActivations, config.text(key, ""), name_of);
    if (found == kActivations.end())
      config.unsupported(key, "supported: " + joined_text(kActivations, ", ", name_of));
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
  Json operator()(const std::vector<double>& list) const { return list.front(); }
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
        else if constexpr (requires { model.mamba.*pointer; })
          return function(model.mamba.*pointer);
        else if constexpr (requires { model.linear_attention.*pointer; })
          return function(model.linear_attention.*pointer);
        else
          return function(model.moe.*pointer);
      },
      member);
}

/// Returns the setting that the row sets if only training uses it, else null.
const Field* training_member(const KeyRow& row) {
  if (!row.member) return nullptr;
  const MemberKey key = std::visit([](auto member) { return member_key(member); }, *row.member);
  const auto& fields = training_members().set().fields;
  const auto found = std::ranges::find(fields, key, &Field::member);
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string source, const ConfigReader* outer)
    : object_(Json(object), std::move(source)), outer_(outer) {
  if (!object_->is_object())
    throw UserError(
        {object_.place() + ": must be a JSON object", std::string(object_->type_name()), ""});
}

const Json* ConfigReader::find(const std::string& key) const {
  read_.insert(key);
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::is_null(const std::string& key) const {
  return object_->contains(key) && !has(key);
}

std::int64_t ConfigReader::size(const std::string& key, std::int64_t most,
                                std::int64_t default_value) const {
  const std::int64_t value =
      has(key) || default_value == 0 ? object_[key].integer() : default_value;
  if (value < 1 || value > most)
    unsupported(key, "it must be between 1 and " + std::to_string(most));
  return value;
}

ConfigReader ConfigReader::section(const std::string& key) const {
  const Json* value = find(key);
  return {value != nullptr ? *value : Json(Json::object()), source() + ": field '" + key + "'",
          this};
}

std::string ConfigReader::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->items())
    if (!read_.contains(name)) names.push_back(name);
  return name_list(names);
}

void ConfigReader::unsupported(const std::string& key, const std::string& fix) const {
  const Json* value = find(key);
  std::string got = value != nullptr ? compact_json(*value) : "null";
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw UserError({source() + ": field '" + key + "' is not supported with this value", got, fix});
}

void read_keys(const KeyRows& rows, const ConfigReader& config, HfConfig& result) {
  for (const KeyRow& row : rows) {
    if (row.read) {
      row.read(config, result);
    } else if (row.member) {
      apply_to(*row.member, result.model, MemberReader{config, result.model, row.key, row.meaning});
    }
    if (const Field* field = training_member(row))
      result.given_training_fields[field->name] =
          config.has(row.key) ? "config.json" : "the family's default";
  }
}

void write_keys(const KeyRows& rows, const TransformerConfig& model, Json& json) {
  for (const KeyRow& row : rows) {
    if (row.write) {
      row.write(model, json);
    } else if (row.member) {
      json[row.key] = apply_to(*row.member, model, MemberWriter{row.meaning});
      const std::string alias(row.meaning.alias);
      if (!alias.empty() && json.contains(alias)) json[alias] = json[row.key];
    }
  }
}

}  // namespace megatron
