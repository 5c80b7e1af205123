#include "megatron/datasets/unique_description.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/json_fwd.h"

namespace megatron {
namespace {

void append_json(const OrderedJson& value, std::size_t indent, std::string& out) {
  const auto new_line = [&](std::size_t spaces) { out += "\n" + std::string(spaces, ' '); };
  if (value.is_number_float()) {
    out += python_float_repr(value.get<double>());
  } else if ((value.is_object() || value.is_array()) && !value.empty()) {
    const bool is_object = value.is_object();
    out += is_object ? '{' : '[';
    bool first = true;
    for (auto item = value.begin(); item != value.end(); ++item) {
      if (!std::exchange(first, false)) out += ',';
      new_line(indent + 4);
      if (is_object)
        out += OrderedJson(item.key()).dump(-1, ' ', true, OrderedJson::error_handler_t::replace) +
               ": ";
      append_json(*item, indent + 4, out);
    }
    new_line(indent);
    out += is_object ? '}' : ']';
  } else {
    out += value.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
  }
}

}  // namespace

std::string python_json_dumps(const JsonText& value) {
  std::string out;
  append_json(OrderedJson::parse(value.dump()), 0, out);
  return out;
}

std::string python_float_repr(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[400];
  const double magnitude = std::fabs(value);
  const bool fixed = value == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value,
                    fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, result.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

JsonText to_json(const TokenizerIdentity& tokenizer) {
  JsonText json{{"class", tokenizer.class_path}, {"tokenizer_path", tokenizer.path}};
  for (const auto& [name, value] : tokenizer.arguments) json[name] = value;
  return json;
}

JsonText to_json(const SampleDescription& samples) {
  JsonText json;
  json["class"] = samples.class_name;
  json["dataset_path"] = samples.path;
  json["num_samples"] = samples.num_samples;
  json["index_split"] = std::string(split_name(samples.split));
  json["random_seed"] = samples.seed;
  json["sequence_length"] = samples.sequence_length;
  json["split"] = samples.split_matrix ? JsonText(samples.split_text) : JsonText(nullptr);
  json["split_matrix"] = to_json(samples.split_matrix);
  json["tokenizer"] = to_json(samples.tokenizer);
  return json;
}

JsonText to_json(const std::optional<SplitMatrix>& matrix) {
  if (!matrix) return nullptr;
  JsonText json = JsonText::array();
  for (std::size_t i = 0; i < matrix->size(); ++i) {
    if (!(*matrix)[i]) {
      json.push_back(nullptr);
      continue;
    }
    const auto [begin, end] = *(*matrix)[i];
    json.push_back(JsonText::array(
        {i == 0 ? JsonText(0) : JsonText(begin), end}));  // Python's sum starts at the int 0
  }
  return json;
}

}  // namespace megatron
