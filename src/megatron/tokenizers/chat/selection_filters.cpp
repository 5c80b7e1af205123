// The filters that apply an attribute, a filter or a test to each item: map, select and theirs.
#include <charconv>

#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/builtins.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {
namespace {

/// Removes and returns a keyword argument.
std::optional<Value> take_keyword(Arguments& arguments, std::string_view name) {
  for (auto it = arguments.keywords.begin(); it != arguments.keywords.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    arguments.keywords.erase(it);
    return value;
  }
  return std::nullopt;
}

/// Removes and returns the first positional argument, which names a filter or test.
std::optional<Value> take_first(Arguments& arguments) {
  if (arguments.positional.empty()) return std::nullopt;
  Value value = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return value;
}

/// Returns the items of the input. These filters read None and other empty values as no items.
Values items_if_true(const Value& input, Meter& meter) {
  return is_true(input) ? items_of(input, meter) : Values();
}

std::string name_of(const Value& value, const char* what) {
  if (!value.is_text())
    throw TemplateError(std::string("the name of a ") + what + " must be a str");
  return value.as_text();
}

Value map(Evaluator& evaluator, const Value& input, Arguments arguments) {
  Meter& meter = evaluator.meter();
  Values result;
  if (arguments.positional.empty() && !arguments.keywords.empty()) {
    const auto attribute = take_keyword(arguments, "attribute");
    const auto otherwise = take_keyword(arguments, "default");
    if (!attribute || !arguments.keywords.empty())
      throw TemplateError("map: unexpected keyword argument");
    for (const Value& item : items_if_true(input, meter)) {
      Value value = nested_attribute(item, *attribute, meter);
      result.push_back(value.is_undefined() && otherwise ? *otherwise : value);
    }
    return Value::iterator(std::move(result));
  }
  const auto filter = take_first(arguments);
  if (!filter) throw TemplateError("map requires a filter argument");
  const std::string name = name_of(*filter, "filter");
  for (const Value& item : items_if_true(input, meter))
    result.push_back(evaluator.apply_filter(name, item, arguments));
  return Value::iterator(std::move(result));
}

template <bool by_attribute, bool wanted>
Value select(Evaluator& evaluator, const Value& input, Arguments arguments) {
  Meter& meter = evaluator.meter();
  std::optional<Value> attribute;
  if (by_attribute) {
    attribute = take_first(arguments);
    if (!attribute) throw TemplateError("Missing parameter for attribute name");
  }
  const auto test = take_first(arguments);
  Values result;
  for (const Value& item : items_if_true(input, meter)) {
    const Value value = attribute ? nested_attribute(item, *attribute, meter) : item;
    const bool holds =
        test ? evaluator.apply_test(name_of(*test, "test"), value, arguments) : is_true(value);
    if (holds == wanted) result.push_back(item);
  }
  return Value::iterator(std::move(result));
}

constexpr FilterEntry kFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
};

}  // namespace

Filter selection_filter(std::string_view name) { return find_in(kFilters, name); }

Value nested_attribute(const Value& value, const Value& attribute, Meter& meter) {
  if (!attribute.is_text()) return get_item(value, attribute, meter);
  Value result = value;
  for (const std::string_view part : split_at(attribute.as_text(), ".", -1, false)) {
    std::int64_t index = 0;
    const char *const begin = part.data(), *const end = begin + part.size();
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == part.npos &&
                          std::from_chars(begin, end, index).ec == std::errc();
    result =
        get_item(result, is_index ? Value::integer(index) : Value::text(std::string(part)), meter);
  }
  return result;
}

}  // namespace megatron::chat
