// Values with behaviour: namespaces, functions, macros and loops.
#pragma once

#include <functional>

#include "megatron/tokenizers/chat/evaluator.h"

namespace megatron::chat {

/// What namespace() returns: the only value whose attributes a template can set.
class NameSpace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(std::string_view name, Meter& meter) override;
  void set(const std::string& name, Value value);
  void clear() { values_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

/// A built-in function.
class Function : public Object {
 public:
  using Body = Value (*)(Evaluator& evaluator, Arguments arguments);
  explicit Function(Body body) : body_(body) {}
  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return body_(evaluator, std::move(arguments));
  }

 private:
  Body body_;
};

/// A macro with the scope that its body sees.
class Macro : public Object {
 public:
  Macro(const Node& node, ScopePtr scope) : node_(node), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name, Meter& meter) override;
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return evaluator.call_macro(node_, scope_, std::move(arguments));
  }

 private:
  const Node& node_;
  ScopePtr scope_;
};

/// The variable `loop`, and the iteration itself.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  /// `accepts` is the loop's condition, or empty.
  Loop(const Node& node, const Value& iterable, ScopePtr scope, int depth0,
       std::function<bool(const Value&)> accepts, Meter& meter);

  /// Moves to the next item; nullopt at the end.
  std::optional<Value> next();
  /// Drops the condition, which refers to the statement that runs the loop.
  void forget_condition() { accepts_ = nullptr; }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string print() override;
  bool is_callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name, Meter& meter) override;
  Value call(Evaluator& evaluator, Arguments arguments) override;
  Value cycle(Arguments arguments) const;
  Value changed(Arguments arguments, Meter& meter);

 private:
  std::optional<Value> next_accepted();
  const std::optional<Value>& peek();
  std::int64_t length();

  const Node& node_;
  ScopePtr scope_;
  int depth0_;
  std::function<bool(const Value&)> accepts_;
  Value source_;  ///< an iterator of its own, or the iterator that the loop reads
  std::optional<Value> before_, current_, after_;
  std::optional<Value> last_changed_;
  std::optional<std::int64_t> length_;
  std::int64_t index0_ = -1;
};

/// Returns the built-in functions: range(), dict(), namespace(), …
std::vector<std::pair<std::string, Value>> global_functions();

}  // namespace megatron::chat
