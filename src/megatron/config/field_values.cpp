#include "megatron/config/field_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Python allows single underscores between digits and white space around a number; charconv does
/// not.
std::optional<std::string> plain_number(const std::string& padded) {
  const std::string text = trim(padded);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1]));
    if (!between) return std::nullopt;
  }
  return plain;
}

template <class V>
std::pair<V, std::errc> convert(const std::string& text) {
  const auto plain = plain_number(text);
  V value{};
  if (!plain || plain->empty()) return {value, std::errc::invalid_argument};
  const char* first =
      plain->data() + ((*plain)[0] == '+' && plain->size() > 1 && (*plain)[1] != '-' ? 1 : 0);
  const char* last = plain->data() + plain->size();
  const auto [end, code] = std::from_chars(first, last, value);
  return {value, code == std::errc{} && end != last ? std::errc::invalid_argument : code};
}

}  // namespace

bool boolean_value(const std::string& text) {
  const std::string lower = lower_case(text);
  if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") return true;
  if (lower == "false" || lower == "no" || lower == "off" || lower == "0") return false;
  throw FieldError{"must be true or false, got '" + text + "'"};
}

std::int64_t integer_value(const std::string& text) {
  const auto [value, code] = convert<std::int64_t>(text);
  if (code == std::errc::result_out_of_range)
    throw FieldError{"must fit in 64 bits, got '" + text + "'"};
  if (code != std::errc{}) throw FieldError{"must be an integer, got '" + text + "'"};
  return value;
}

double number_value(const std::string& text) {
  const auto [value, code] = convert<double>(text);
  if (code == std::errc::result_out_of_range)
    throw FieldError{"must be a number that a double can hold, got '" + text + "'"};
  if (code != std::errc{} || !std::isfinite(value))
    throw FieldError{"must be a number, got '" + text + "'"};
  return value;
}

std::optional<double> float_value(const std::string& text) {
  const auto [value, code] = convert<double>(text);
  return code == std::errc{} ? std::optional(value) : std::nullopt;
}

std::string number_text(double value) {
  constexpr double kExactIntegers = 1e15;
  if (value == std::floor(value) && std::abs(value) >= 1000 && std::abs(value) < kExactIntegers)
    return std::to_string(static_cast<std::int64_t>(value));
  char buffer[32];
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end};
}

bool is_none(const std::string& text) { return text == "none" || text == "None" || text == "null"; }

const std::string& single_value(std::span<const std::string> values) {
  if (values.size() != 1) throw FieldError{"takes one value, got " + std::to_string(values.size())};
  return values[0];
}

std::vector<std::string> split_numbers(std::span<const std::string> values) {
  std::string all;
  for (const std::string& value : values) all += value + " ";
  while (!all.empty() && all.back() == ' ') all.pop_back();
  if (all.size() >= 2 &&
      ((all.front() == '[' && all.back() == ']') || (all.front() == '(' && all.back() == ')'))) {
    all = all.substr(1, all.size() - 2);
  }
  std::vector<std::string> parts;
  std::string part;
  for (const char c : all + ",") {
    if (c != ',' && c != ' ') {
      part += c;
    } else if (!part.empty()) {
      parts.push_back(std::exchange(part, {}));
    }
  }
  return parts;
}

IntegerPair pair_value(std::span<const std::string> values) {
  const auto parts = split_numbers(values);
  if (parts.size() != 2)
    throw FieldError{"takes two integers \"left,right\", got '" + join_values(values) + "'"};
  return {integer_value(parts[0]), integer_value(parts[1])};
}

}  // namespace megatron
