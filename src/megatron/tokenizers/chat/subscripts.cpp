// Lengths, iteration, attributes, items and slices of values.
#include "megatron/tokenizers/chat/methods.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

/// Returns value[index] for a Python index, or nullopt beyond the ends.
std::optional<Value> element(const Value& value, std::int64_t index, Meter& meter) {
  const std::int64_t length = *length_of(value);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  const auto place = static_cast<std::size_t>(index);
  if (!value.is_text()) return value.items()[place];
  const std::string& text = value.as_text();
  meter.charge(1 + text.size() / 32);
  const std::size_t begin = byte_of_character(text, place);
  const std::string_view rest = std::string_view(text).substr(begin);
  return Value::text(std::string(rest.substr(0, byte_of_character(rest, 1))));
}

/// Returns value[key] if Python has it.
std::optional<Value> item_of(const Value& value, const Value& key, Meter& meter) {
  if (value.is(Kind::dict)) {
    if (key.is(Kind::list) || key.is(Kind::dict)) return std::nullopt;
    const Value* found = value.as_dict().find(key, meter);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  const bool has_index = value.is_text() || value.is(Kind::list) || value.is(Kind::tuple) ||
                         (value.is(Kind::view) && value.view_name().starts_with("range"));
  if (has_index && key.is_integral()) return element(value, key.as_integer(), meter);
  return std::nullopt;
}

/// Returns Python's attribute of the value, or why it must not be used.
std::optional<Value> attribute_of(const Value& value, const std::string& name, Meter& meter) {
  if (value.is(Kind::object)) return value.as_object().attribute(name, meter);
  return method_of(value, name);
}

Value missing(const Value& value, const Value& key, Meter& meter) {
  if (!key.is_text())
    return Value::undefined(type_name(value) + " object has no element " + to_repr(key, meter));
  if (value.is_text())
    return Value::undefined("the method " + text_repr(key.as_text()) + " of str is not supported");
  return Value::undefined("'" + type_name(value) + " object' has no attribute " +
                          text_repr(key.as_text()));
}

/// Places of a Python slice: `count` items from `first` in steps.
struct Slice {
  std::int64_t first, count, step;
};

Slice resolve_slice(std::int64_t length, const Value& first, const Value& last,
                    const Value& step_value) {
  const auto number = [](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    if (!value.is_integral())
      throw TemplateError("slice indices must be integers or None, not " + type_name(value));
    return value.as_integer();
  };
  const std::int64_t step = number(step_value, 1);
  if (step == 0) throw TemplateError("slice step cannot be zero");
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto clamp = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    std::int64_t place = number(value, 0);
    if (place < 0) place = place < -length ? low : place + length;
    return std::clamp(place, low, std::max(low, high));
  };
  const std::int64_t begin = clamp(first, step > 0 ? low : high);
  const std::int64_t end = clamp(last, step > 0 ? high : low);
  const std::int64_t distance = step > 0 ? end - begin : begin - end;
  if (distance <= 0) return {begin, 0, step};
  const std::uint64_t stride =
      step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  return {begin, static_cast<std::int64_t>((static_cast<std::uint64_t>(distance) - 1) / stride) + 1,
          step};
}

}  // namespace

std::optional<std::int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return static_cast<std::int64_t>(count_characters(value.as_text()));
  if (value.is_sequence()) return static_cast<std::int64_t>(value.items().size());
  if (value.is(Kind::dict)) return static_cast<std::int64_t>(value.as_dict().entries().size());
  return std::nullopt;
}

Values items_of(const Value& value, Meter& meter) {
  Values items;
  if (value.is_sequence()) {
    items = value.items();
  } else if (value.is(Kind::iterator)) {
    items = value.take_items();
  } else if (value.is(Kind::dict)) {
    for (const auto& [key, ignored] : value.as_dict().entries()) items.push_back(key);
  } else if (value.is_text()) {
    meter.charge_bytes(value.as_text().size());
    for (const std::string_view character : characters_of(value.as_text()))
      items.push_back(Value::text(std::string(character)));
  } else if (!value.is_undefined()) {
    throw TemplateError("'" + type_name(value) + "' object is not iterable");
  }
  meter.charge(1 + items.size());
  return items;
}

Value get_attribute(const Value& value, const std::string& name, Meter& meter) {
  require_defined(value);
  if (auto found = attribute_of(value, name, meter)) return *std::move(found);
  const Value key = Value::text(name);
  if (auto found = item_of(value, key, meter)) return *std::move(found);
  return missing(value, key, meter);
}

Value get_item(const Value& value, const Value& key, Meter& meter) {
  require_defined(value);
  if (auto found = item_of(value, key, meter)) return *std::move(found);
  if (key.is_text())
    if (auto found = attribute_of(value, key.as_text(), meter)) return *std::move(found);
  return missing(value, key, meter);
}

Value get_slice(const Value& value, const Value& first, const Value& last, const Value& step,
                Meter& meter) {
  require_defined(value);
  const bool is_range = value.is(Kind::view) && value.view_name().starts_with("range");
  if (!value.is_text() && !value.is(Kind::list) && !value.is(Kind::tuple) && !is_range)
    throw TemplateError("'" + type_name(value) + "' object cannot be sliced");
  const Slice slice = resolve_slice(*length_of(value), first, last, step);
  if (value.is_text()) {
    meter.charge_bytes(value.as_text().size());
    const std::string_view text = value.as_text();
    if (slice.step == 1) {
      const auto begin = byte_of_character(text, static_cast<std::size_t>(slice.first));
      const std::string_view rest = text.substr(begin);
      const auto size = byte_of_character(rest, static_cast<std::size_t>(slice.count));
      return Value::text(std::string(rest.substr(0, size)));
    }
    const auto characters = characters_of(text);
    std::string out;
    for (std::int64_t i = 0; i < slice.count; ++i)
      out += characters[static_cast<std::size_t>(slice.first + i * slice.step)];
    return Value::text(std::move(out));
  }
  meter.charge_bytes(16 * static_cast<std::size_t>(slice.count));
  Values items;
  for (std::int64_t i = 0; i < slice.count; ++i)
    items.push_back(value.items()[static_cast<std::size_t>(slice.first + i * slice.step)]);
  if (value.is(Kind::tuple)) return Value::tuple(std::move(items));
  return is_range ? Value::view(std::move(items), value.view_name())
                  : Value::list(std::move(items));
}

}  // namespace megatron::chat
