#include "megatron/tokenizers/chat/objects.h"

#include "megatron/tokenizers/chat/operators.h"

namespace megatron::chat {
namespace {

/// A method of a loop.
class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<Loop> loop, bool is_cycle)
      : loop_(std::move(loop)), is_cycle_(is_cycle) {
    depth = deeper(loop_->depth);
  }
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return is_cycle_ ? loop_->cycle(std::move(arguments))
                     : loop_->changed(std::move(arguments), evaluator.meter());
  }

 private:
  std::shared_ptr<Loop> loop_;
  bool is_cycle_;
};

}  // namespace

std::optional<Value> NameSpace::attribute(std::string_view name, Meter&) {
  for (const auto& [known, value] : values_)
    if (known == name) return value;
  return std::nullopt;
}

void NameSpace::set(const std::string& name, Value value) {
  if (value.depth() >= depth) depth = deeper(value.depth());
  for (auto& [known, old] : values_)
    if (known == name) {
      old = std::move(value);
      return;
    }
  values_.emplace_back(name, std::move(value));
}

std::optional<Value> Macro::attribute(std::string_view name, Meter&) {
  if (name == "name") return Value::text(node_.text);
  if (name != "arguments") return std::nullopt;
  Values names;
  for (const Parameter& parameter : node_.parameters) names.push_back(Value::text(parameter.name));
  return Value::tuple(std::move(names));
}

Loop::Loop(const Node& node, const Value& iterable, ScopePtr scope, int depth0,
           std::function<bool(const Value&)> accepts, Meter& meter)
    : node_(node), scope_(std::move(scope)), depth0_(depth0), accepts_(std::move(accepts)) {
  source_ = iterable.is(Kind::iterator) ? iterable : Value::iterator(items_of(iterable, meter));
  depth = deeper(source_.depth());
  const auto known = length_of(iterable);
  if (known && !accepts_) length_ = known;
}

std::optional<Value> Loop::next_accepted() {
  for (;;) {
    std::optional<Value> item = source_.take_item();
    if (!item || !accepts_ || accepts_(*item)) return item;
  }
}

const std::optional<Value>& Loop::peek() {
  if (!after_) after_ = next_accepted();
  return after_;
}

std::optional<Value> Loop::next() {
  std::optional<Value> item = after_ ? std::exchange(after_, std::nullopt) : next_accepted();
  if (!item) return item;
  ++index0_;
  before_ = std::exchange(current_, item);
  return item;
}

std::int64_t Loop::length() {
  if (length_) return *length_;
  Values rest;
  while (auto item = next_accepted()) rest.push_back(*std::move(item));
  length_ = static_cast<std::int64_t>(rest.size()) + index0_ + 1 + (after_ ? 1 : 0);
  source_ = Value::iterator(std::move(rest));
  accepts_ = nullptr;
  return *length_;
}

std::string Loop::print() {
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" + std::to_string(length()) + ">";
}

std::optional<Value> Loop::attribute(std::string_view name, Meter&) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "depth") return Value::integer(depth0_ + 1);
  if (name == "depth0") return Value::integer(depth0_);
  if (name == "previtem")
    return index0_ == 0 || !before_ ? Value::undefined("there is no previous item") : *before_;
  if (name == "nextitem") return peek() ? *after_ : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed")
    return Value::object(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle"));
  return std::nullopt;
}

Value Loop::call(Evaluator& evaluator, Arguments arguments) {
  if (!node_.is_recursive)
    throw TemplateError("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1 || !arguments.keywords.empty())
    throw TemplateError("loop() takes one argument");
  return Value::text(evaluator.capture_loop(node_, arguments.positional[0], scope_, depth0_ + 1));
}

Value Loop::cycle(Arguments arguments) const {
  const Values& values = arguments.positional;
  if (values.empty()) throw TemplateError("no items for cycling given");
  return values[static_cast<std::size_t>(index0_) % values.size()];
}

Value Loop::changed(Arguments arguments, Meter& meter) {
  const Value now = Value::tuple(std::move(arguments.positional));
  depth = std::max(depth, deeper(now.depth()));
  const bool has_changed = !last_changed_ || !equals(*last_changed_, now, meter);
  last_changed_ = now;
  return Value::boolean(has_changed);
}

}  // namespace megatron::chat
