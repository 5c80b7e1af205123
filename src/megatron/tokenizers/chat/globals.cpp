// The functions that every template may call.
#include <ctime>

#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/objects.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"

namespace megatron::chat {
namespace {

Value range(Evaluator& evaluator, Arguments arguments) {
  constexpr std::int64_t kMost = 100'000;  // Jinja's sandbox allows no more
  const std::size_t count = arguments.positional.size();
  const Bound bound("range", std::move(arguments), {"start", "stop", "step"}, 1);
  const std::int64_t start = count > 1 ? bound.integer(0, 0) : 0;
  const std::int64_t stop = bound.integer(count > 1 ? 1 : 0, 0), step = bound.integer(2, 1);
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  Values items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kMost)
      throw TemplateError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                          std::to_string(kMost) + ").");
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  evaluator.meter().charge(1 + items.size());
  std::string name = "range(" + std::to_string(start) + ", " + std::to_string(stop);
  if (step != 1) name += ", " + std::to_string(step);
  return Value::view(std::move(items), name + ")");
}

/// Sets a dict's entries from a mapping or from pairs.
template <class Set>
void each_entry(const Value& source, Meter& meter, const Set& set) {
  require_defined(source);
  if (source.is(Kind::dict)) {
    for (const auto& [key, value] : source.as_dict().entries()) set(key, value);
    return;
  }
  for (const Value& pair : items_of(source, meter)) {
    const Values parts = items_of(pair, meter);
    if (parts.size() != 2) throw TemplateError("dict() needs pairs of a key and a value");
    set(parts[0], parts[1]);
  }
}

Value make_dict(Evaluator& evaluator, Arguments arguments) {
  Dict dict;
  Meter& meter = evaluator.meter();
  if (arguments.positional.size() > 1) throw TemplateError("dict expected at most 1 argument");
  for (const Value& source : arguments.positional)
    each_entry(source, meter,
               [&](const Value& key, const Value& value) { dict.set(key, value, meter); });
  for (auto& [name, value] : arguments.keywords)
    dict.set(Value::text(name), std::move(value), meter);
  meter.charge(1 + dict.entries().size());
  return Value::dict(std::move(dict));
}

Value make_namespace(Evaluator& evaluator, Arguments arguments) {
  auto result = std::make_shared<NameSpace>();
  for (const Value& source : arguments.positional)
    each_entry(source, evaluator.meter(), [&](const Value& key, const Value& value) {
      result->set(to_text(key, evaluator.meter()), value);
    });
  for (auto& [name, value] : arguments.keywords) result->set(name, std::move(value));
  evaluator.keep(result);
  return Value::object(std::move(result));
}

Value raise_exception(Evaluator& evaluator, Arguments arguments) {
  const Bound bound("raise_exception", std::move(arguments), {"message"}, 1);
  throw TemplateError(to_text(bound.value(0), evaluator.meter()));
}

Value strftime_now(Evaluator& evaluator, Arguments arguments) {
  const Bound bound("strftime_now", std::move(arguments), {"format"}, 1);
  const std::string format = bound.text(0, "");
  const std::time_t now = evaluator.now();
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[4096];
  // An empty result and one that does not fit look the same, so a letter precedes it.
  const std::size_t size = std::strftime(text, sizeof text, (" " + format).c_str(), &parts);
  if (size == 0) throw TemplateError("strftime_now: the date is too long");
  return Value::text(std::string(text + 1, size - 1));
}

}  // namespace

std::vector<std::pair<std::string, Value>> global_functions() {
  const auto function = [](Function::Body body) {
    return Value::object(std::make_shared<Function>(body));
  };
  return {{"range", function(range)},
          {"dict", function(make_dict)},
          {"namespace", function(make_namespace)},
          {"raise_exception", function(raise_exception)},
          {"strftime_now", function(strftime_now)}};
}

}  // namespace megatron::chat
