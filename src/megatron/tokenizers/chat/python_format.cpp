#include "megatron/tokenizers/chat/python_format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

constexpr std::int64_t kWidest = 1 << 20;

/// How one value is formatted: [flags][width][.precision]type.
struct Spec {
  char fill = ' ';
  char align = '>';  ///< '<', '>' or '=', which fills behind the sign
  char sign = '-';
  bool alternate = false;
  std::int64_t width = 0, precision = -1;
  char type = 0;
};

std::int64_t read_number(std::string_view text, std::size_t& at, std::int64_t otherwise) {
  std::int64_t value = otherwise;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || value > kWidest)
    throw TemplateError("a width or precision is too large");
  at = static_cast<std::size_t>(end - text.data());
  return value;
}

std::string integer_digits(std::uint64_t magnitude, const Spec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : 10;
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  std::string digits(buffer, end.ptr);
  if (spec.type == 'X') digits = upper(digits);
  if (spec.alternate && base != 10) digits = std::string("0") + spec.type + digits;
  return digits;
}

std::string real_digits(double magnitude, const Spec& spec) {
  if (!std::isfinite(magnitude)) return real_text(magnitude);
  const std::string format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + spec.type;
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, magnitude);
  std::string digits(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), format.c_str(), precision, magnitude);
  digits.pop_back();
  return digits;
}

/// Returns the text with its sign, padded to the width.
std::string pad(const std::string& sign, const std::string& body, const Spec& spec, Meter& meter) {
  const auto length = static_cast<std::int64_t>(count_characters(sign + body));
  const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(0, spec.width - length));
  meter.charge_bytes(missing + sign.size() + body.size());
  const std::string fills(missing, spec.fill);
  if (spec.align == '<') return sign + body + fills;
  return spec.align == '=' ? sign + fills + body : fills + sign + body;
}

std::string format_number(const Value& value, const Spec& spec, Meter& meter) {
  constexpr std::string_view kRealTypes = "eEfFgG";
  const bool as_real = value.is(Kind::real) || kRealTypes.find(spec.type) != std::string::npos;
  const bool is_negative =
      value.is(Kind::real) ? std::signbit(value.as_real()) : value.as_integer() < 0;
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const auto magnitude = static_cast<std::uint64_t>(value.is(Kind::real) ? 0 : value.as_integer());
  const std::string body = as_real && spec.type != 'd'
                               ? real_digits(std::fabs(value.as_real()), spec)
                               : integer_digits(is_negative ? 0 - magnitude : magnitude, spec);
  return pad(sign, body, spec, meter);
}

std::string format_text(const std::string& text, const Spec& spec, Meter& meter) {
  const std::size_t end = spec.precision < 0
                              ? text.size()
                              : byte_of_character(text, static_cast<std::size_t>(spec.precision));
  return pad("", text.substr(0, end), spec, meter);
}

/// Reads conversions such as %-8s, %(name)s and %.2f.
class PercentFormatter {
 public:
  PercentFormatter(const Value& value, Meter& meter) : value_(value), meter_(meter) {
    is_tuple_ = value.is(Kind::tuple);
  }

  std::string format(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '%') {
        out += text[at++];
        continue;
      }
      ++at;
      out += conversion(text, at);
      meter_.check_size(out.size());
    }
    const bool is_mapping = value_.is(Kind::dict) || value_.is(Kind::list) || value_.is_undefined();
    if (is_tuple_ ? next_ < value_.items().size() : next_ == 0 && !by_name_ && !is_mapping)
      throw TemplateError("not all arguments converted during string formatting");
    return out;
  }

 private:
  Value next_value() {
    const std::size_t count = is_tuple_ ? value_.items().size() : 1;
    if (next_ >= count) throw TemplateError("not enough arguments for format string");
    return is_tuple_ ? value_.items()[next_++] : (++next_, value_);
  }

  std::string conversion(std::string_view text, std::size_t& at) {
    std::optional<Value> named;
    if (at < text.size() && text[at] == '(') {
      const std::size_t close = text.find(')', at);
      if (close == std::string_view::npos) throw TemplateError("incomplete format key");
      if (!value_.is(Kind::dict)) throw TemplateError("format requires a mapping");
      const std::string key(text.substr(at + 1, close - at - 1));
      const Value* found = value_.as_dict().find(key);
      if (found == nullptr) throw TemplateError("format: no key is called '" + key + "'");
      named = *found;
      by_name_ = true;
      at = close + 1;
    }
    Spec spec = flags(text, at);
    if (at == text.size()) throw TemplateError("incomplete format");
    const char type = text[at++];
    if (type == '%') return "%";
    const Value value = named ? *named : next_value();
    if (type != 's' && type != 'r' && type != 'a') return number(value, type, spec);
    if (spec.align == '=') spec.align = '>', spec.fill = ' ';
    return format_text(type == 's' ? to_text(value, meter_) : to_repr(value, meter_), spec, meter_);
  }

  Spec flags(std::string_view text, std::size_t& at) {
    Spec spec;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string::npos;
         ++at) {
      if (text[at] == '-') spec.align = '<', spec.fill = ' ';
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0' && spec.align != '<') spec.align = '=', spec.fill = '0';
    }
    spec.width = read_number(text, at, 0);
    if (at < text.size() && text[at] == '.') spec.precision = read_number(text, ++at, 0);
    return spec;
  }

  std::string number(const Value& value, char type, Spec spec) {
    if (std::string_view("diouxXeEfFgG").find(type) == std::string_view::npos)
      throw TemplateError(std::string("unsupported format character '") + type + "'");
    if (!value.is_number())
      throw TemplateError(std::string("%") + type + " format: a number is required, not " +
                          type_name(value));
    const bool is_integral = std::string_view("diouxX").find(type) != std::string_view::npos;
    spec.type =
        is_integral && std::string_view("diu").find(type) != std::string_view::npos ? 'd' : type;
    if (!is_integral || !value.is(Kind::real)) return format_number(value, spec, meter_);
    const double whole = std::trunc(value.as_real());
    if (!(std::fabs(whole) < 9e18)) throw TemplateError("an integer is beyond 64 bits");
    return format_number(Value::integer(static_cast<std::int64_t>(whole)), spec, meter_);
  }

  const Value& value_;
  Meter& meter_;
  bool is_tuple_ = false, by_name_ = false;
  std::size_t next_ = 0;
};

}  // namespace

std::string format_percent(std::string_view format, const Value& value, Meter& meter) {
  return PercentFormatter(value, meter).format(format);
}

}  // namespace megatron::chat
