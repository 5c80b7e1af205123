// Filters to and on numbers.
#include <cctype>
#include <charconv>
#include <cmath>

#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/builtins.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {
namespace {

/// Removes the underscores between digits. Returns false if there are others.
bool remove_underscores(std::string& digits) {
  const auto is_digit = [&](std::size_t at) {
    return at < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[at])) != 0;
  };
  for (std::size_t i = 0; i < digits.size(); ++i)
    if (digits[i] == '_' && (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))) return false;
  std::erase(digits, '_');
  return true;
}

/// Returns the number that a text is as Python's float() reads it.
std::optional<double> parse_real(std::string_view text) {
  std::string digits(strip(text, Side::both));
  if (!remove_underscores(digits)) return std::nullopt;
  const std::string_view body = std::string_view(digits).substr(digits.starts_with('+') ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (end != body.data() + body.size() || body.empty() || error == std::errc::invalid_argument)
    return std::nullopt;
  return error == std::errc() ? value : std::strtod(digits.c_str(), nullptr);
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  std::string digits(strip(text, Side::both));
  if (!remove_underscores(digits)) return std::nullopt;
  const bool has_sign = digits.starts_with('+') || digits.starts_with('-');
  const bool is_negative = digits.starts_with('-');
  std::string_view body = std::string_view(digits).substr(has_sign ? 1 : 0);
  const char letter = body.size() > 2 && body[0] == '0' ? static_cast<char>(body[1] | 0x20) : '0';
  if ((base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b'))
    body.remove_prefix(2);
  const std::string number = (is_negative ? "-" : "") + std::string(body);
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (error == std::errc::result_out_of_range) throw TemplateError("an integer is beyond 64 bits");
  if (error != std::errc() || end != number.data() + number.size() || body.starts_with('-'))
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> truncated(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return std::nullopt;
  if (!(std::fabs(*value) < 9.2e18)) throw TemplateError("an integer is beyond 64 bits");
  return static_cast<std::int64_t>(*value);
}

Value to_integer(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("int", std::move(arguments), {"default", "base"});
  const std::int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) throw TemplateError("int: base must be from 2 to 36");
  require_defined(input);
  std::optional<std::int64_t> value;
  if (input.is_text()) {
    value = parse_integer(input.as_text(), static_cast<int>(base));
    if (!value) value = truncated(parse_real(input.as_text()));
  } else if (input.is_integral()) {
    value = input.as_integer();
  } else if (input.is(Kind::real)) {
    value = truncated(input.as_real());
  }
  return value ? Value::integer(*value) : bound.value(0, Value::integer(0));
}

Value to_real(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("float", std::move(arguments), {"default"});
  require_defined(input);
  if (input.is_number()) return Value::real(input.as_real());
  const auto value = input.is_text() ? parse_real(input.as_text()) : std::nullopt;
  return value ? Value::real(*value) : bound.value(0, Value::real(0));
}

Value absolute(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("absolute", std::move(arguments), {});
  require_defined(input);
  if (input.is(Kind::real)) return Value::real(std::fabs(input.as_real()));
  if (!input.is_integral())
    throw TemplateError("bad operand type for abs(): '" + type_name(input) + "'");
  return input.as_integer() < 0 ? negative(input, true) : Value::integer(input.as_integer());
}

/// Python's round(): the nearest decimal of the exact value, halves to even.
double round_decimal(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  char text[700];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
  double rounded = value;
  std::from_chars(text, end.ptr, rounded);
  return rounded;
}

Value round(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("round", std::move(arguments), {"precision", "method"});
  const std::string method = bound.text(1, "common");
  const std::int64_t digits = bound.integer(0, 0);
  require_defined(input);
  if (method != "common" && method != "ceil" && method != "floor")
    throw TemplateError("method must be common, ceil or floor");
  if (!input.is_number()) throw TemplateError("round needs a number, not " + type_name(input));
  if (digits < -300 || digits > 300) throw TemplateError("round: the precision is too large");
  if (method == "common" && input.is_integral()) {
    if (digits >= 0) return Value::integer(input.as_integer());
    return Value::integer(
        static_cast<std::int64_t>(round_decimal(input.as_real(), static_cast<int>(digits))));
  }
  if (method == "common")
    return Value::real(round_decimal(input.as_real(), static_cast<int>(digits)));
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = input.as_real() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr FilterEntry kFilters[] = {
    {"abs", absolute},
    {"float", to_real},
    {"int", to_integer},
    {"round", round},
};

}  // namespace

Filter number_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace megatron::chat
