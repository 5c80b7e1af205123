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

/// Goes round its values: cycler.next(), cycler.current and cycler.reset().
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(Values values) : values_(std::move(values)) { depth = depth_around(values_); }
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name, Meter&) override;
  Value next() { return values_[place_++ % values_.size()]; }
  Value reset() { return place_ = 0, Value(); }

 private:
  Values values_;
  std::size_t place_ = 0;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycler> cycler, bool is_next)
      : cycler_(std::move(cycler)), is_next_(is_next) {
    depth = deeper(cycler_->depth);
  }
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator&, Arguments) override {
    return is_next_ ? cycler_->next() : cycler_->reset();
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool is_next_;
};

std::optional<Value> Cycler::attribute(std::string_view name, Meter&) {
  if (name == "current") return values_[place_ % values_.size()];
  if (name != "next" && name != "reset") return std::nullopt;
  return Value::object(std::make_shared<CyclerMethod>(shared_from_this(), name == "next"));
}

/// Returns "" when it is called first, and its separator from then on.
class Joiner : public Object {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator&, Arguments) override {
    return Value::text(std::exchange(is_used_, true) ? separator_ : "");
  }

 private:
  std::string separator_;
  bool is_used_ = false;
};

Value make_cycler(Evaluator&, Arguments arguments) {
  if (arguments.positional.empty()) throw TemplateError("at least one item has to be provided");
  return Value::object(std::make_shared<Cycler>(std::move(arguments.positional)));
}

Value make_joiner(Evaluator&, Arguments arguments) {
  const Bound bound("joiner", std::move(arguments), {"sep"});
  return Value::object(std::make_shared<Joiner>(bound.text(0, ", ")));
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
          {"cycler", function(make_cycler)},
          {"joiner", function(make_joiner)},
          {"raise_exception", function(raise_exception)},
          {"strftime_now", function(strftime_now)}};
}

}  // namespace megatron::chat
