#include "megatron/config/field.h"

#include <algorithm>

#include "megatron/base/words.h"
#include "megatron/config/field_values.h"
#include "megatron/config/problems.h"

namespace megatron {
namespace {

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

std::string uppercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string choices_text(const Field& field, const char* separator) {
  std::string text;
  for (const std::string& choice : field.choices) text += (text.empty() ? "" : separator) + choice;
  return text;
}

void check_choice(const Field& field, const std::string& value) {
  if (field.choices.empty() ||
      std::find(field.choices.begin(), field.choices.end(), value) != field.choices.end())
    return;
  const std::string near = nearest_name(value, field.choices);
  throw FieldError{"must be one of " + choices_text(field, ", ") + ", got '" + value + "'",
                   near.empty() ? field.choices_fix : "did you mean '" + near + "'?"};
}

void check_bounds(const Field& field, const std::string& value) {
  if (!field.minimum && !field.maximum) return;
  const double number = field.kind == ValueKind::integer ? static_cast<double>(integer_value(value))
                                                         : number_value(value);
  const auto fail = [&](const char* relation, double bound) {
    throw FieldError{std::string("must be ") + relation + " " + number_text(bound) + ", got " +
                     value};
  };
  if (field.minimum && field.minimum_is_excluded && !(number > *field.minimum))
    fail("above", *field.minimum);
  if (field.minimum && !(number >= *field.minimum)) fail("at least", *field.minimum);
  if (field.maximum && field.maximum_is_excluded && !(number < *field.maximum))
    fail("below", *field.maximum);
  if (field.maximum && !(number <= *field.maximum)) fail("at most", *field.maximum);
}

}  // namespace

std::string Field::flag() const { return "--" + replaced(name, '_', '-'); }

std::string Field::environment_name() const { return "MEGATRON_" + uppercase(name); }

const Field* FieldSet::find_name(std::string_view name) const {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

void assign(const Field& field, void* object, std::span<const std::string> values) {
  std::vector<std::string> parts(values.begin(), values.end());
  const bool unset = field.is_optional && values.size() == 1 && is_none(values[0]);
  if (!unset) {
    const bool numeric = field.kind == ValueKind::integer || field.kind == ValueKind::number;
    if (field.is_list && (numeric || !field.choices.empty())) parts = split_numbers(values);
    for (const std::string& value : parts) {
      check_choice(field, value);
      check_bounds(field, value);
    }
  }
  field.set(object, parts);
}

void copy_values(const Field& field, std::vector<std::string> values, void* object) {
  if (values.empty() && field.is_optional) values.emplace_back("none");
  field.set(object, values);
}

std::string join_values(std::span<const std::string> values) {
  return values.empty() ? "none" : joined_text(values, " ");
}

std::string value_placeholder(const Field& field) {
  if (!field.value_name.empty()) return field.value_name;
  if (!field.choices.empty()) return "{" + choices_text(field, ",") + "}";
  if (field.is_positional) return replaced(uppercase(field.name), '_', '-');
  switch (field.kind) {
    case ValueKind::boolean:
      return "true|false";
    case ValueKind::integer:
      return "N";
    case ValueKind::number:
      return "X";
    case ValueKind::text:
      return "TEXT";
  }
  return "";
}

}  // namespace megatron
