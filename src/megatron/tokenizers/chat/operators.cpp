#include "megatron/tokenizers/chat/operators.h"

#include <cmath>

#include "megatron/tokenizers/chat/python_format.h"
#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {
namespace {

bool equal_items(const Values& left, const Values& right, Meter& meter) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!equals(left[i], right[i], meter)) return false;
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right, Meter& meter) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(key, meter);
    if (other == nullptr || !equals(value, *other, meter)) return false;
  }
  return true;
}

[[noreturn]] void unsupported(const char* sign, const Value& left, const Value& right) {
  throw TemplateError(std::string("unsupported operand type(s) for ") + sign + ": '" +
                      type_name(left) + "' and '" + type_name(right) + "'");
}

[[noreturn]] void beyond_64_bits() { throw TemplateError("an integer is beyond 64 bits"); }

const char* sign_of(Arithmetic operation) {
  constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<int>(operation)];
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (std::int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) beyond_64_bits();
  return result;
}

Value integer_arithmetic(Arithmetic operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (operation) {
    case Arithmetic::add:
      if (__builtin_add_overflow(a, b, &result)) beyond_64_bits();
      break;
    case Arithmetic::subtract:
      if (__builtin_sub_overflow(a, b, &result)) beyond_64_bits();
      break;
    case Arithmetic::multiply:
      if (__builtin_mul_overflow(a, b, &result)) beyond_64_bits();
      break;
    case Arithmetic::divide:
      if (b == 0) throw TemplateError("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::floor_divide:
    case Arithmetic::modulo: {
      if (b == 0) throw TemplateError("integer division or modulo by zero");
      if (b == -1) {
        if (operation == Arithmetic::modulo) return Value::integer(0);
        return integer_arithmetic(Arithmetic::subtract, 0, a);
      }
      const std::int64_t rest = a % b;
      const bool rounds_down = rest != 0 && (rest < 0) != (b < 0);
      result = operation == Arithmetic::modulo ? (rounds_down ? rest + b : rest)
                                               : a / b - (rounds_down ? 1 : 0);
      break;
    }
    case Arithmetic::power:
      if (b < 0) return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
      result = integer_power(a, b);
  }
  return Value::integer(result);
}

struct FloorDivision {
  double quotient, rest;
};

/// Python's divmod() of floats: the rest has the sign of the divisor, zeros too.
FloorDivision floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1 : whole, rest};
}

Value real_arithmetic(Arithmetic operation, double a, double b) {
  const bool divides = operation == Arithmetic::divide || operation == Arithmetic::floor_divide ||
                       operation == Arithmetic::modulo;
  if (divides && b == 0) throw TemplateError("float division by zero");
  switch (operation) {
    case Arithmetic::add:
      return Value::real(a + b);
    case Arithmetic::subtract:
      return Value::real(a - b);
    case Arithmetic::multiply:
      return Value::real(a * b);
    case Arithmetic::divide:
      return Value::real(a / b);
    case Arithmetic::floor_divide:
      return Value::real(floor_divide(a, b).quotient);
    case Arithmetic::modulo:
      return Value::real(floor_divide(a, b).rest);
    case Arithmetic::power:
      return Value::real(std::pow(a, b));
  }
  return {};
}

/// Returns value * count for texts, lists and tuples.
Value repeat(const Value& value, std::int64_t count, Meter& meter) {
  const std::size_t times = count > 0 ? static_cast<std::size_t>(count) : 0;
  const std::size_t size = value.is_text() ? value.as_text().size() : value.items().size() * 16;
  if (size > 0 && times > meter.limits().value_bytes / size) meter.check_size(SIZE_MAX);
  meter.charge_bytes(size * times);
  if (value.is_text()) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += value.as_text();
    return Value::text(std::move(text));
  }
  Values items;
  for (std::size_t i = 0; i < times; ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value join_texts(const Value& left, const Value& right, Meter& meter) {
  meter.charge_bytes(left.as_text().size() + right.as_text().size());
  if (left.is_markup() == right.is_markup()) {
    std::string joined = left.as_text() + right.as_text();
    return left.is_markup() ? Value::markup(std::move(joined)) : Value::text(std::move(joined));
  }
  const auto escaped = [](const Value& v) {
    return v.is_markup() ? v.as_text() : escape_html(v.as_text());
  };
  return Value::markup(escaped(left) + escaped(right));
}

std::optional<Value> sequence_arithmetic(Arithmetic operation, const Value& left,
                                         const Value& right, Meter& meter) {
  const auto repeats = [](const Value& v) {
    return v.is_text() || v.is(Kind::list) || v.is(Kind::tuple);
  };
  if (operation == Arithmetic::multiply) {
    if (repeats(left) && right.is_integral()) return repeat(left, right.as_integer(), meter);
    if (repeats(right) && left.is_integral()) return repeat(right, left.as_integer(), meter);
  }
  if (operation == Arithmetic::modulo && left.is_text())
    return Value::text(format_percent(left.as_text(), right, meter));
  if (operation != Arithmetic::add) return std::nullopt;
  if (left.is_text() && right.is_text()) return join_texts(left, right, meter);
  if (left.kind() != right.kind() || !(left.is(Kind::list) || left.is(Kind::tuple)))
    return std::nullopt;
  meter.charge_bytes(16 * (left.items().size() + right.items().size()));
  Values items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

}  // namespace

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::real:
      return value.as_real() != 0;
    case Kind::text:
      return !value.as_text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::view:
      return !value.items().empty();
    case Kind::dict:
      return !value.as_dict().entries().empty();
    case Kind::iterator:
      return true;
    case Kind::object:
      return length_of(value).value_or(1) != 0;
  }
  return true;
}

void require_hashable(const Value& value) {
  if (value.is(Kind::list) || value.is(Kind::dict))
    throw TemplateError("unhashable type: '" + type_name(value) + "'");
  if (value.is(Kind::tuple))
    for (const Value& item : value.items()) require_hashable(item);
}

bool equals(const Value& left, const Value& right, Meter& meter) {
  meter.charge(1);
  if (left.is_same(right) && !left.is(Kind::real)) return true;
  if (left.is_integral() && right.is_integral()) return left.as_integer() == right.as_integer();
  if (left.is_number() && right.is_number()) return left.as_real() == right.as_real();
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::undefined:
      return true;
    case Kind::text:
      return left.as_text() == right.as_text();
    case Kind::list:
    case Kind::tuple:
      return equal_items(left.items(), right.items(), meter);
    case Kind::view:
      return left.view_name() == right.view_name() &&
             equal_items(left.items(), right.items(), meter);
    case Kind::dict:
      return equal_dicts(left.as_dict(), right.as_dict(), meter);
    default:
      return false;
  }
}

int compare(const Value& left, const Value& right, const char* sign, Meter& meter) {
  meter.charge(1);
  require_defined(left);
  require_defined(right);
  if (left.is_integral() && right.is_integral())
    return three_way(left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) return three_way(left.as_real(), right.as_real());
  if (left.is_text() && right.is_text()) return left.as_text().compare(right.as_text());
  if (left.kind() == right.kind() && (left.is(Kind::list) || left.is(Kind::tuple))) {
    const Values &a = left.items(), &b = right.items();
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!equals(a[i], b[i], meter)) return compare(a[i], b[i], sign, meter);
    return three_way(a.size(), b.size());
  }
  throw TemplateError(std::string("'") + sign + "' not supported between instances of '" +
                      type_name(left) + "' and '" + type_name(right) + "'");
}

bool contains(const Value& container, const Value& item, Meter& meter) {
  if (container.is_text()) {
    if (!item.is_text())
      throw TemplateError("'in <string>' requires string as left operand, not " + type_name(item));
    meter.charge(1 + container.as_text().size() / 32);
    return find_part(container.as_text(), item.as_text()) != std::string_view::npos;
  }
  if (container.is(Kind::dict)) {
    require_hashable(item);
    return container.as_dict().find(item, meter) != nullptr;
  }
  if (container.is_sequence()) {
    for (const Value& candidate : container.items())
      if (equals(candidate, item, meter)) return true;
    return false;
  }
  if (container.is(Kind::iterator)) {
    while (const auto candidate = container.take_item())
      if (equals(*candidate, item, meter)) return true;
    return false;
  }
  if (container.is_undefined()) return false;
  throw TemplateError("argument of type '" + type_name(container) + "' is not iterable");
}

Value arithmetic(Arithmetic operation, const Value& left, const Value& right, Meter& meter) {
  require_defined(left);
  if (!(operation == Arithmetic::modulo && left.is_text())) require_defined(right);
  if (left.is_integral() && right.is_integral())
    return integer_arithmetic(operation, left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number())
    return real_arithmetic(operation, left.as_real(), right.as_real());
  if (auto result = sequence_arithmetic(operation, left, right, meter)) return *std::move(result);
  unsupported(sign_of(operation), left, right);
}

Value negative(const Value& value, bool is_minus) {
  require_defined(value);
  if (value.is(Kind::real)) return Value::real(is_minus ? -value.as_real() : value.as_real());
  if (!value.is_integral())
    throw TemplateError(std::string("bad operand type for unary ") + (is_minus ? "-" : "+") +
                        ": '" + type_name(value) + "'");
  return is_minus ? integer_arithmetic(Arithmetic::subtract, 0, value.as_integer())
                  : Value::integer(value.as_integer());
}

}  // namespace megatron::chat
