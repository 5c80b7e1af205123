#include "megatron/config/print_config.h"

#include <algorithm>

#include "megatron/base/json_text.h"
#include "megatron/base/words.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

/// One setting of the dump.
struct ShownSetting {
  const Field* field;
  std::vector<std::string> values;
  std::string origin;  ///< default, derived, file, environment, flag
  std::string where;
};

const char* origin_name(Origin::Kind kind) {
  switch (kind) {
    case Origin::Kind::default_value:
      return "default";
    case Origin::Kind::file:
      return "file";
    case Origin::Kind::environment:
      return "environment";
    case Origin::Kind::flag:
      return "flag";
  }
  return "";
}

std::vector<ShownSetting> shown_settings(const RunConfig& run) {
  Settings resolved = run.options.settings;
  resolve(resolved);
  std::vector<ShownSetting> lines;
  for (const Field& field : settings_table().set().fields) {
    if (field.is_hidden) continue;
    const Origin origin = run.parsed.origin(field.name);
    ShownSetting line{&field, field.get(&resolved), origin_name(origin.kind), origin.where};
    if (line.values != field.get(&run.options.settings) ||
        (origin.kind == Origin::Kind::default_value && line.values != field.default_values)) {
      line.origin = "derived";
      line.where.clear();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Formats the value as Python prints it.
std::string python_text(const Field& field, const std::vector<std::string>& values) {
  const bool quoted = field.kind == ValueKind::text;
  if (field.is_list && (!values.empty() || !field.is_optional)) {
    const auto text_of = [&](const std::string& value) {
      return quoted ? "'" + value + "'" : value;
    };
    return "[" + joined_text(values, ", ", text_of) + "]";
  }
  if (values.empty()) return "None";
  if (field.kind == ValueKind::boolean) return values[0] == "true" ? "True" : "False";
  return values[0];
}

}  // namespace

std::string config_text(const RunConfig& run) {
  std::string text, group;
  for (const ShownSetting& line : shown_settings(run)) {
    if (line.field->group != group) {
      text += (text.empty() ? "" : "\n") + line.field->group + "\n";
      group = line.field->group;
    }
    std::string row = "  " + line.field->name;
    row.resize(std::max<std::size_t>(row.size() + 1, 45), ' ');
    row += join_values(line.values);
    row.resize(std::max<std::size_t>(row.size() + 1, 71), ' ');
    text += row + line.origin + (line.where.empty() ? "" : " " + line.where) + "\n";
  }
  return text;
}

std::string config_json(const RunConfig& run) {
  JsonText object = JsonText::object();
  for (const ShownSetting& line : shown_settings(run)) {
    const Field& field = *line.field;
    const bool is_unset = field.is_optional && line.values.empty();
    object[field.name] = {
        {"value", is_unset ? JsonText() : typed_values<JsonText>(field, line.values)},
        {"origin", line.origin}};
    if (!line.where.empty()) object[field.name]["where"] = line.where;
  }
  return object.dump(2) + "\n";
}

std::vector<std::pair<std::string, std::string>> argument_values(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Field& field : settings_table().set().fields) {
    if (!field.is_hidden) values.emplace_back(field.name, python_text(field, field.get(&settings)));
  }
  std::sort(values.begin(), values.end(),
            [](const auto& a, const auto& b) { return lower_case(a.first) < lower_case(b.first); });
  return values;
}

std::string argument_dump(const Settings& settings) {
  std::string text = "------------------------ arguments ------------------------\n";
  for (const auto& [name, value] : argument_values(settings)) {
    text += "  " + name + " " + std::string(name.size() < 48 ? 48 - name.size() : 0, '.') + " " +
            value + "\n";
  }
  return text + "-------------------- end of arguments ---------------------\n";
}

}  // namespace megatron
