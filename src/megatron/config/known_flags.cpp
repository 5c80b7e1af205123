#include "megatron/config/known_flags.h"

#include <algorithm>
#include <memory>

#include "megatron/base/words.h"
#include "megatron/config/engine_settings.h"
#include "megatron/config/field_table.h"
#include "megatron/config/field_values.h"
#include "megatron/config/speculative_config.h"

namespace megatron {
namespace {

/// Returns whether two texts denote the same value: "1e-3" and ".001", "None" and "-".
bool same_value(const std::string& a, const std::string& b) {
  if (a == b || (b == "-" && (a.empty() || is_none(a)))) return true;
  const auto number = float_value(a);
  return number && number == float_value(b);
}

bool all_neutral(std::span<const std::string> values, const std::vector<std::string>& neutral) {
  return std::all_of(values.begin(), values.end(), [&](const std::string& value) {
    return std::any_of(neutral.begin(), neutral.end(),
                       [&](const std::string& known) { return same_value(value, known); });
  });
}

void describe_switch(Field& field, std::string word) {
  if (word.back() == '^') field.aliases.push_back("disable-" + word.substr(3, word.size() - 4));
  if (word.back() == '?') field.off_flags.push_back("no-" + word.substr(0, word.size() - 1));
  if (word.back() == '^' || word.back() == '?') word.pop_back();
  if (word.starts_with("no-")) field.off_flags.push_back(word.substr(3));
  field.kind = ValueKind::boolean;
  field.name = word;
}

/// Returns the neutral values of a refused flag, or the choices of an accepted one.
std::vector<std::string> describe_value(Field& field, const std::string& word) {
  const auto equals = word.find('=');
  field.is_list = word[equals - 1] == '+';
  field.name = word.substr(0, equals - (field.is_list ? 1 : 0));
  const std::string right = word.substr(equals + 1);
  if (right == "*") return {};
  if (right.front() == '{') {
    field.choices = split_at(right.substr(1, right.size() - 2), ',');
    field.is_optional = true;
    return {};
  }
  return split_at(right, ';');
}

/// Makes the field one that sets nothing.
void hide(Field& field, std::string_view help) {
  field.group = "Known flags of Megatron-LM";
  field.help = help;
  field.is_hidden = true;
  field.get = [](const void*) { return std::vector<std::string>{}; };
}

Field make_field(const KnownFlags& flags, const std::string& word) {
  Field field;
  const bool is_value = word.find('=') != std::string::npos;
  std::vector<std::string> neutral{"false"};
  if (is_value) {
    neutral = describe_value(field, word);
  } else {
    describe_switch(field, word);
  }
  std::replace(field.name.begin(), field.name.end(), '-', '_');
  hide(field, flags.reason);
  if (flags.treatment == KnownFlags::Treatment::accepted) {
    field.note = field.help;
    field.set = [is_value](void*, std::span<const std::string> values) {
      if (!is_value) boolean_value(single_value(values));
    };
    return field;
  }
  field.is_refused = true;
  field.set = [reason = flags.reason, fix = flags.fix, neutral, is_value](
                  void*, std::span<const std::string> values) {
    const bool fits =
        is_value ? all_neutral(values, neutral) : !boolean_value(single_value(values));
    if (!fits) throw FieldError{std::string(reason), std::string(fix)};
  };
  return field;
}

/// Adds the flags of a table that only `commands` obey, which run the inference engine.
template <class Options>
void add_engine_flags(const FieldTable<Options>& table, const std::string& commands,
                      std::vector<Field>& fields) {
  for (Field field : table.set().fields) {
    hide(field, "without effect: it is for the inference engine of " + commands);
    field.note = field.help;
    field.member = {};
    field.set = [set = field.set](void*, std::span<const std::string> values) {
      Options unused;
      set(&unused, values);
    };
    fields.push_back(std::move(field));
  }
}

}  // namespace

std::vector<Field> known_flag_fields(const KnownFlags& flags) {
  std::vector<Field> fields;
  for (const std::string& word : split_words(std::string(flags.words)))
    fields.push_back(make_field(flags, word));
  return fields;
}

std::vector<Field> engine_flag_fields() {
  std::vector<Field> fields;
  add_engine_flags(engine_table(), "`generate`, `batch`, `serve` and `evaluate`", fields);
  add_engine_flags(speculative_table(), "`generate`, `batch` and `serve`", fields);
  return fields;
}

std::vector<Field> known_flag_fields() {
  std::vector<Field> fields = engine_flag_fields();
  for (const KnownFlags& flags : known_flags()) {
    for (Field& field : known_flag_fields(flags)) fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace megatron
