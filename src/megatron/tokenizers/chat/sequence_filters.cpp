// Filters on lists, dicts and other values with items.
#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/builtins.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {
namespace {

Value default_value(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("default", std::move(arguments), {"default_value", "boolean"});
  const bool is_missing = input.is_undefined() || (bound.truth(1, false) && !is_true(input));
  return is_missing ? bound.value(0, Value::text("")) : input;
}

Value length(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("length", std::move(arguments), {});
  const auto found = length_of(input);
  if (!found) throw TemplateError("object of type '" + type_name(input) + "' has no len()");
  return Value::integer(*found);
}

Value first(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("first", std::move(arguments), {});
  if (input.is(Kind::iterator))
    return input.take_item().value_or(Value::undefined("No first item, sequence was empty."));
  const Values items = items_of(input, evaluator.meter());
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("last", std::move(arguments), {});
  if (input.is(Kind::iterator))
    throw TemplateError("'" + type_name(input) + "' object is not reversible");
  const Values items = items_of(input, evaluator.meter());
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value to_list(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("to_list", std::move(arguments), {});
  return Value::list(items_of(input, evaluator.meter()));
}

Value reverse(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("reverse", std::move(arguments), {});
  if (input.is_text()) return get_slice(input, {}, {}, Value::integer(-1), evaluator.meter());
  Values items = items_of(input, evaluator.meter());
  std::reverse(items.begin(), items.end());
  return Value::iterator(std::move(items), "reversed");
}

Value join(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("join", std::move(arguments), {"d", "attribute"});
  Meter& meter = evaluator.meter();
  const std::string separator = to_text(bound.value(0, Value::text("")), meter);
  std::string out;
  bool is_first = true;
  for (Value item : items_of(input, meter)) {
    if (bound.has(1) && !bound.value(1).is_none())
      item = nested_attribute(item, bound.value(1), meter);
    if (!is_first) out += separator;
    is_first = false;
    const std::string text = to_text(item, meter);
    meter.charge_bytes(text.size() + separator.size());
    out += text;
    meter.check_size(out.size());
  }
  return Value::text(std::move(out));
}

/// Sorts values by the keys of the same places, by Python's order.
Values sort_by(const Values& keys, const Values& values, bool is_reversed, Meter& meter) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Keys that have no order must not reach std::sort, which may then read beyond its range: the
  // first comparison of two of them throws, and merging does no other harm.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int sign = compare(keys[a], keys[b], "<", meter);
    return is_reversed ? sign > 0 : sign < 0;
  });
  Values sorted;
  for (const std::size_t place : order) sorted.push_back(values[place]);
  return sorted;
}

/// Returns the key of an item under `attribute`, which may name several with commas.
Value attribute_key(const Value& item, const Value& attribute, bool case_sensitive, Meter& meter) {
  if (attribute.is_none()) return sort_key(item, case_sensitive);
  if (!attribute.is_text() || attribute.as_text().find(',') == std::string::npos)
    return sort_key(nested_attribute(item, attribute, meter), case_sensitive);
  Values parts;
  for (const std::string_view part : split_at(attribute.as_text(), ",", -1, false))
    parts.push_back(
        sort_key(nested_attribute(item, Value::text(std::string(part)), meter), case_sensitive));
  return Value::list(std::move(parts));
}

Value sort(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  Meter& meter = evaluator.meter();
  const Values items = items_of(input, meter);
  Values keys;
  for (const Value& item : items)
    keys.push_back(
        Value::list({attribute_key(item, bound.value(2), bound.truth(1, false), meter)}));
  return Value::list(sort_by(keys, items, bound.truth(0, false), meter));
}

Value dict_sort(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value")
    throw TemplateError("You can only sort by either \"key\" or \"value\"");
  if (!input.is(Kind::dict)) throw TemplateError("dictsort needs a dict, not " + type_name(input));
  Values keys;
  for (const auto& [key, value] : input.as_dict().entries())
    keys.push_back(sort_key(by == "key" ? key : value, bound.truth(0, false)));
  return Value::list(
      sort_by(keys, input.as_dict().pairs(), bound.truth(2, false), evaluator.meter()));
}

Value unique(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("unique", std::move(arguments), {"case_sensitive", "attribute"});
  Meter& meter = evaluator.meter();
  Dict seen;
  Values result;
  for (const Value& item : items_of(input, meter)) {
    const Value key = attribute_key(item, bound.value(1), bound.truth(0, false), meter);
    if (seen.find(key, meter) != nullptr) continue;
    seen.set(key, Value(), meter);
    result.push_back(item);
  }
  return Value::iterator(std::move(result));
}

template <bool is_max>
Value extreme(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound(is_max ? "max" : "min", std::move(arguments), {"case_sensitive", "attribute"});
  Meter& meter = evaluator.meter();
  std::optional<Value> best, best_key;
  for (const Value& item : items_of(input, meter)) {
    const Value key = attribute_key(item, bound.value(1), bound.truth(0, false), meter);
    if (best) {
      const int order = compare(key, *best_key, is_max ? ">" : "<", meter);
      if (is_max ? order <= 0 : order >= 0) continue;
    }
    best = item;
    best_key = key;
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("sum", std::move(arguments), {"attribute", "start"});
  Meter& meter = evaluator.meter();
  Value total = bound.value(1, Value::integer(0));
  for (Value item : items_of(input, meter)) {
    if (bound.has(0) && !bound.value(0).is_none())
      item = nested_attribute(item, bound.value(0), meter);
    total = arithmetic(Arithmetic::add, total, item, meter);
  }
  return total;
}

Value items(Evaluator& evaluator, const Value& input, Arguments arguments) {
  const Bound bound("items", std::move(arguments), {});
  if (input.is_undefined()) return Value::iterator({});
  if (!input.is(Kind::dict)) throw TemplateError("Can only get item pairs from a mapping.");
  Values pairs = input.as_dict().pairs();
  evaluator.meter().charge(1 + pairs.size());
  return Value::iterator(std::move(pairs));
}

constexpr FilterEntry kFilters[] = {
    {"count", length},       {"d", default_value},   {"default", default_value},
    {"dictsort", dict_sort}, {"first", first},       {"items", items},
    {"join", join},          {"last", last},         {"length", length},
    {"list", to_list},       {"max", extreme<true>}, {"min", extreme<false>},
    {"reverse", reverse},    {"sort", sort},         {"sum", sum},
    {"unique", unique},
};

}  // namespace

Filter sequence_filter(std::string_view name) { return find_in(kFilters, name); }

Value sort_key(const Value& value, bool case_sensitive) {
  return value.is_text() && !case_sensitive ? Value::text(lower(value.as_text())) : value;
}

}  // namespace megatron::chat
