// Converts text to typed values and back, for every type of setting. Functions that parse throw
// FieldError.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "megatron/config/field.h"

namespace megatron {

/// The names of an enum's values. Specialize it with a member `static constexpr
/// std::array<std::pair<std::string_view, E>, N> value`. The first name of a value is printed.
template <class E>
struct EnumNames;

bool boolean_value(const std::string& text);  ///< true/false, yes/no, on/off, 1/0
/// Parses a decimal integer as Python's int() does: a sign, single underscores and white space
/// around it are allowed.
std::int64_t integer_value(const std::string& text);
double number_value(const std::string& text);  ///< finite decimal number
/// Parses a number as Python's float() does, also "inf" and "nan"; nullopt: it is none.
std::optional<double> float_value(const std::string& text);
std::string number_text(double value);  ///< shortest text that parses to the same double
bool is_none(const std::string& text);  ///< "none", "None" or "null"

template <class V>
inline constexpr bool is_optional_v = false;
template <class V>
inline constexpr bool is_optional_v<std::optional<V>> = true;
template <class V>
inline constexpr bool is_vector_v = false;
template <class V>
inline constexpr bool is_vector_v<std::vector<V>> = true;
using IntegerPair = std::array<std::int64_t, 2>;

/// Parses two integers written as "l,r", as "(l,r)" or as two values.
IntegerPair pair_value(std::span<const std::string> values);
/// Returns the only value. Throws FieldError if there are none or several.
const std::string& single_value(std::span<const std::string> values);
/// Splits a list of numbers or names at commas and spaces, after removing one pair of [ ] or ( ).
std::vector<std::string> split_numbers(std::span<const std::string> values);

/// Returns one value of a field as a JSON value of its kind.
template <class Value>
Value typed_value(const Field& field, const std::string& text) {
  switch (field.kind) {
    case ValueKind::boolean:
      return boolean_value(text);
    case ValueKind::integer:
      return integer_value(text);
    case ValueKind::number:
      return number_value(text);
    case ValueKind::text:
      break;
  }
  return text;
}

/// Returns the values of a field as a JSON value: a list, one value, or null where there is none.
template <class Value>
Value typed_values(const Field& field, const std::vector<std::string>& values) {
  if (!field.is_list) return values.empty() ? Value() : typed_value<Value>(field, values.front());
  Value list = Value::array();
  for (const std::string& value : values) list.push_back(typed_value<Value>(field, value));
  return list;
}

/// Parses one value of type V.
template <class V>
V scalar_value(const std::string& text) {
  if constexpr (std::is_same_v<V, bool>) {
    return boolean_value(text);
  } else if constexpr (std::is_same_v<V, std::int64_t>) {
    return integer_value(text);
  } else if constexpr (std::is_same_v<V, double>) {
    return number_value(text);
  } else if constexpr (std::is_enum_v<V>) {
    for (const auto& [name, value] : EnumNames<V>::value) {
      if (name == text) return value;
    }
    throw FieldError{"'" + text + "' is not a known value"};
  } else {
    static_assert(std::is_same_v<V, std::string>,
                  "settings are bool, int64_t, double, string, enums, or optional/vector of these");
    return text;
  }
}

template <class V>
std::string scalar_text(const V& value) {
  if constexpr (std::is_same_v<V, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<V, std::int64_t>) {
    return std::to_string(value);
  } else if constexpr (std::is_same_v<V, double>) {
    return number_text(value);
  } else if constexpr (std::is_enum_v<V>) {
    for (const auto& [name, known] : EnumNames<V>::value) {
      if (known == value) return std::string(name);
    }
    return std::to_string(static_cast<long long>(value));
  } else {
    return value;
  }
}

/// Parses the values of a member of any supported type.
template <class V>
void read_values(V& member, std::span<const std::string> values) {
  if constexpr (is_optional_v<V>) {
    if (values.size() == 1 && is_none(values[0])) {
      member.reset();
      return;
    }
    typename V::value_type inner{};
    read_values(inner, values);
    member = std::move(inner);
  } else if constexpr (is_vector_v<V>) {
    using Item = typename V::value_type;
    member.clear();
    if constexpr (std::is_same_v<Item, std::string>) {
      member.assign(values.begin(), values.end());
    } else {
      for (const std::string& text : split_numbers(values))
        member.push_back(scalar_value<Item>(text));
    }
  } else if constexpr (std::is_same_v<V, IntegerPair>) {
    member = pair_value(values);
  } else if constexpr (std::is_same_v<V, std::string>) {
    member = values.empty() ? std::string() : single_value(values);
  } else {
    member = scalar_value<V>(single_value(values));
  }
}

/// Returns the values of a member as text; empty if unset.
template <class V>
std::vector<std::string> write_values(const V& member) {
  if constexpr (is_optional_v<V>) {
    return member ? write_values(*member) : std::vector<std::string>{};
  } else if constexpr (is_vector_v<V>) {
    std::vector<std::string> texts;
    for (const auto& item : member) texts.push_back(scalar_text<typename V::value_type>(item));
    return texts;
  } else if constexpr (std::is_same_v<V, IntegerPair>) {
    return {std::to_string(member[0]) + "," + std::to_string(member[1])};
  } else if constexpr (std::is_same_v<V, std::string>) {
    return member.empty() ? std::vector<std::string>{} : std::vector<std::string>{member};
  } else {
    return {scalar_text(member)};
  }
}

/// Sets the kind, the list and optional flags and the choices of `field` from the member's type.
template <class V>
void describe_type(Field& field) {
  if constexpr (is_optional_v<V>) {
    field.is_optional = true;
    describe_type<typename V::value_type>(field);
  } else if constexpr (is_vector_v<V>) {
    field.is_list = true;
    describe_type<typename V::value_type>(field);
  } else if constexpr (std::is_same_v<V, bool>) {
    field.kind = ValueKind::boolean;
  } else if constexpr (std::is_same_v<V, std::int64_t>) {
    field.kind = ValueKind::integer;
  } else if constexpr (std::is_same_v<V, double>) {
    field.kind = ValueKind::number;
  } else if constexpr (std::is_same_v<V, IntegerPair>) {
    field.is_list = true;
    field.value_name = "N,N";
  } else if constexpr (std::is_enum_v<V>) {
    for (const auto& entry : EnumNames<V>::value) field.choices.emplace_back(entry.first);
  }
}

}  // namespace megatron
