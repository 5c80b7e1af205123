#include "megatron/tokenizers/chat/python_format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

constexpr std::int64_t kWidest = 1 << 20;

/// How one value is formatted: [[fill]align][sign][#][0][width][,][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = 0;  ///< '<', '>', '^' or '='; 0: the type's
  char sign = '-';
  bool alternate = false, grouped = false;
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

std::string group_thousands(std::string digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = whole; at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string integer_digits(std::uint64_t magnitude, const Spec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  std::string digits(buffer, end.ptr);
  if (spec.type == 'X') digits = upper(digits);
  if (spec.alternate && base != 10) digits = std::string("0") + spec.type + digits;
  return spec.grouped ? group_thousands(std::move(digits)) : digits;
}

std::string real_digits(double magnitude, const Spec& spec) {
  if (spec.type == 0 && spec.precision < 0) return real_text(magnitude);
  if (!std::isfinite(magnitude)) return real_text(magnitude);
  const bool is_percent = spec.type == '%';
  const char type = is_percent ? 'f' : spec.type == 0 ? 'g' : spec.type;
  const std::string format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + type;
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const double value = is_percent ? magnitude * 100 : magnitude;
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, value);
  std::string digits(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), format.c_str(), precision, value);
  digits.pop_back();
  if (spec.grouped) digits = group_thousands(std::move(digits));
  return is_percent ? digits + "%" : digits;
}

/// Returns the text with its sign, padded to the width.
std::string pad(const std::string& sign, const std::string& body, const Spec& spec, char align,
                Meter& meter) {
  const auto length = static_cast<std::int64_t>(count_characters(sign + body));
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - length);
  meter.charge_bytes(static_cast<std::size_t>(missing) + sign.size() + body.size());
  const auto fills = [&](std::int64_t count) {
    std::string out;
    for (; count > 0; --count) out += spec.fill;
    return out;
  };
  if (align == '<') return sign + body + fills(missing);
  if (align == '=') return sign + fills(missing) + body;
  if (align == '^') return fills(missing / 2) + sign + body + fills(missing - missing / 2);
  return fills(missing) + sign + body;
}

std::string format_number(const Value& value, const Spec& spec, Meter& meter) {
  constexpr std::string_view kRealTypes = "eEfFgG%";
  const bool as_real = value.is(Kind::real) || kRealTypes.find(spec.type) != std::string::npos;
  const bool is_negative =
      value.is(Kind::real) ? std::signbit(value.as_real()) : value.as_integer() < 0;
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const auto magnitude = static_cast<std::uint64_t>(value.is(Kind::real) ? 0 : value.as_integer());
  const std::string body = as_real && spec.type != 'd'
                               ? real_digits(std::fabs(value.as_real()), spec)
                               : integer_digits(is_negative ? 0 - magnitude : magnitude, spec);
  return pad(sign, body, spec, spec.align != 0 ? spec.align : '>', meter);
}

std::string format_text(const std::string& text, const Spec& spec, Meter& meter) {
  const std::size_t end = spec.precision < 0
                              ? text.size()
                              : byte_of_character(text, static_cast<std::size_t>(spec.precision));
  return pad("", text.substr(0, end), spec, spec.align != 0 ? spec.align : '<', meter);
}

Spec read_brace_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const std::size_t first = byte_of_character(text, 1);
  const auto is_align = [&](std::size_t place) {
    return place < text.size() && std::string_view("<>=^").find(text[place]) != std::string::npos;
  };
  if (!text.empty() && is_align(first)) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto take = [&](char c) {
    return at < text.size() && text[at] == c ? (++at, true) : false;
  };
  for (const char sign : {'+', '-', ' '})
    if (take(sign)) spec.sign = sign;
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) spec.fill = "0", spec.align = '=';
  spec.width = read_number(text, at, 0);
  spec.grouped = take(',');
  if (take('.')) spec.precision = read_number(text, at, 0);
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size() || (spec.type != 0 && std::string_view("bdoxXeEfFgGsn%").find(spec.type) ==
                                                  std::string_view::npos))
    throw TemplateError("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

std::string format_one(const Value& value, std::string_view spec_text, Meter& meter) {
  if (spec_text.empty()) return to_text(value, meter);
  const Spec spec = read_brace_spec(spec_text);
  constexpr std::string_view kIntegerTypes = "bdoxX";
  if (value.is(Kind::real) && kIntegerTypes.find(spec.type) != std::string_view::npos)
    throw TemplateError(std::string("Unknown format code '") + spec.type +
                        "' for object of type 'float'");
  if (value.is_number() && spec.type != 's' && !(value.is(Kind::boolean) && spec.type == 0))
    return format_number(value, spec, meter);
  if (spec.type != 0 && spec.type != 's')
    throw TemplateError(std::string("Unknown format code '") + spec.type +
                        "' for object of type '" + type_name(value) + "'");
  if (spec.sign != '-' || spec.grouped || spec.alternate || spec.align == '=')
    throw TemplateError("Invalid format specifier '" + std::string(spec_text) + "' for a str");
  return format_text(to_text(value, meter), spec, meter);
}

/// Reads replacement fields such as {0.name[key]!r:>8}.
class BraceFormatter {
 public:
  BraceFormatter(const Arguments& arguments, Meter& meter) : arguments_(arguments), meter_(meter) {}

  std::string format(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at];
      if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
        out += c;
        at += 2;
      } else if (c == '}') {
        throw TemplateError("Single '}' encountered in format string");
      } else if (c == '{') {
        const std::size_t end = text.find('}', at);
        if (end == std::string_view::npos) throw TemplateError("expected '}' before end of string");
        out += field(text.substr(at + 1, end - at - 1));
        at = end + 1;
      } else {
        out += c;
        ++at;
      }
      meter_.charge(1);
      meter_.check_size(out.size());
    }
    return out;
  }

 private:
  std::string field(std::string_view text) {
    if (text.find('{') != std::string_view::npos)
      throw TemplateError("nested replacement fields are not supported");
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string_view spec = colon < text.size() ? text.substr(colon + 1) : std::string_view();
    std::string_view name = text.substr(0, colon);
    char conversion = 0;
    if (const std::size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) throw TemplateError("bad conversion in format string");
      conversion = name.back();
      name = name.substr(0, mark);
    }
    Value value = lookup(name);
    if (conversion == 'r') value = Value::text(to_repr(value, meter_));
    if (conversion == 's') value = Value::text(to_text(value, meter_));
    return format_one(value, spec, meter_);
  }

  Value lookup(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    for (std::size_t at = end; at < name.size();) {
      if (name[at] == '.') {
        const std::size_t next = std::min(name.find_first_of(".[", at + 1), name.size());
        value = get_attribute(value, std::string(name.substr(at + 1, next - at - 1)), meter_);
        at = next;
      } else {
        const std::size_t close = name.find(']', at);
        if (name[at] != '[' || close == std::string_view::npos)
          throw TemplateError("Only '.' or '[' may follow ']' in format field specifier");
        value = get_item(value, key(name.substr(at + 1, close - at - 1)), meter_);
        at = close + 1;
      }
      require_defined(value);
    }
    return value;
  }

  static Value key(std::string_view text) {
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool is_number =
        !text.empty() && error == std::errc() && end == text.data() + text.size();
    return is_number ? Value::integer(index) : Value::text(std::string(text));
  }

  Value argument(std::string_view name) {
    const Value place = name.empty() ? Value::integer(next_++) : key(name);
    if (place.is(Kind::integer)) {
      has_numbers_ = has_numbers_ || !name.empty();
      if (has_numbers_ && next_ > 0)
        throw TemplateError("numbered and automatic fields cannot be mixed in a format");
      const auto index = static_cast<std::size_t>(place.as_integer());
      if (index >= arguments_.positional.size())
        throw TemplateError("Replacement index " + std::to_string(index) +
                            " out of range for positional args tuple");
      return arguments_.positional[index];
    }
    for (const auto& [known, value] : arguments_.keywords)
      if (known == name) return value;
    throw TemplateError("format: no argument is called '" + std::string(name) + "'");
  }

  const Arguments& arguments_;
  Meter& meter_;
  std::int64_t next_ = 0;
  bool has_numbers_ = false;
};

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
    if (type == 's') return format_text(to_text(value, meter_), right_by_default(spec), meter_);
    if (type == 'r' || type == 'a')
      return format_text(to_repr(value, meter_), right_by_default(spec), meter_);
    return number(value, type, spec);
  }

  static Spec right_by_default(Spec spec) {
    if (spec.align != '<') spec.align = '>', spec.fill = " ";
    return spec;
  }

  Spec flags(std::string_view text, std::size_t& at) {
    Spec spec;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string::npos;
         ++at) {
      if (text[at] == '-') spec.align = '<', spec.fill = " ";
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0' && spec.align != '<') spec.align = '=', spec.fill = "0";
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

std::string format_braces(std::string_view format, const Arguments& arguments, Meter& meter) {
  return BraceFormatter(arguments, meter).format(format);
}

}  // namespace megatron::chat
