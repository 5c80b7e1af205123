#include "megatron/tokenizers/chat/evaluator.h"

#include "megatron/tokenizers/chat/builtins.h"
#include "megatron/tokenizers/chat/methods.h"
#include "megatron/tokenizers/chat/objects.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [known, value] : scope->variables)
      if (known == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, old] : variables)
    if (known == name) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

Meter& meter_of(Evaluator& evaluator) { return evaluator.meter(); }

Evaluator::Level::Level(Evaluator& evaluator, int line) : evaluator_(evaluator) {
  evaluator.line_ = line;
  evaluator.meter_.charge(1);
  if (evaluator.level_ >= evaluator.meter_.limits().depth)
    throw TemplateError("the template calls itself too deep");
  ++evaluator.level_;
}

Evaluator::~Evaluator() {
  // Namespaces and macros may refer to themselves: each drops its values while all still live.
  for (const auto& name_space : name_spaces_) name_space->clear();
  for (const ScopePtr& scope : macro_scopes_) std::exchange(scope->variables, {}).clear();
}

std::string Evaluator::render(const Nodes& body,
                              std::vector<std::pair<std::string, Value>> variables) {
  auto root = std::make_shared<Scope>();
  root->variables = global_functions();
  for (auto& [name, value] : variables) root->set(name, std::move(value));
  auto scope = std::make_shared<Scope>();
  scope->parent = root;
  macro_scopes_.push_back(scope);
  try {
    run(body, scope);
  } catch (const TemplateError& error) {
    throw TemplateError(error.what(), error.line() > 0 ? error.line() : line_);
  }
  return std::move(out_);
}

Evaluator::Flow Evaluator::run(const Nodes& body, const ScopePtr& scope) {
  for (const NodePtr& node : body)
    if (const Flow flow = run_one(*node, scope); flow != Flow::normal) return flow;
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_one(const Node& node, const ScopePtr& scope) {
  const Level level(*this, node.line);
  const auto inner = [&] {
    auto result = std::make_shared<Scope>();
    result->parent = scope;
    return result;
  };
  switch (node.kind) {
    case NodeKind::output:
      print(node.children.empty() ? node.value : evaluate(*node.children[0], scope));
      break;
    case NodeKind::set:
      assign(*node.children[0], evaluate(*node.children[1], scope), scope);
      break;
    case NodeKind::set_block:
      run_set_block(node, scope);
      break;
    case NodeKind::for_loop:
      run_loop(node, evaluate(*node.children[1], scope), scope, 0);
      break;
    case NodeKind::if_else:
      return run_if(node, scope);
    case NodeKind::macro:
      scope->set(node.text, make_macro(node, scope));
      break;
    case NodeKind::call_block:
      run_call_block(node, scope);
      break;
    case NodeKind::filter_block:
      print(evaluate_block_filter(*node.children[0], Value::text(capture(node.body, inner())),
                                  scope));
      break;
    case NodeKind::with:
      run_with(node, scope);
      break;
    case NodeKind::generation:
      run(node.body, inner());
      break;
    case NodeKind::break_loop:
      return Flow::leave_loop;
    case NodeKind::continue_loop:
      return Flow::next_iteration;
    default:
      throw TemplateError("a statement was expected");
  }
  return Flow::normal;
}

void Evaluator::print(const Value& value) {
  if (value.is_text()) {
    meter_.charge_bytes(value.as_text().size());
    out_ += value.as_text();
  } else {
    out_ += to_text(value, meter_);
  }
  meter_.check_size(out_.size());
}

Evaluator::Flow Evaluator::run_if(const Node& node, const ScopePtr& scope) {
  for (std::size_t i = 0; i < node.children.size(); ++i)
    if (is_true(evaluate(*node.children[i], scope))) return run(node.branches[i], scope);
  return run(node.otherwise, scope);
}

std::string Evaluator::capture(const Nodes& body, const ScopePtr& scope) {
  std::string outer = std::exchange(out_, {});
  run(body, scope);
  std::swap(outer, out_);
  return outer;
}

void Evaluator::run_set_block(const Node& node, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  Value value = Value::text(capture(node.body, inner));
  if (node.children[1]) value = evaluate_block_filter(*node.children[1], std::move(value), scope);
  assign(*node.children[0], std::move(value), scope);
}

void Evaluator::run_with(const Node& node, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  for (std::size_t i = 0; i < node.children.size(); i += 2)
    assign(*node.children[i], evaluate(*node.children[i + 1], scope), inner);
  run(node.body, inner);
}

void Evaluator::run_call_block(const Node& node, const ScopePtr& scope) {
  const Value caller = make_macro(node, scope);
  print(evaluate_call(*node.children[0], scope, &caller));
}

void Evaluator::assign(const Node& target, Value value, const ScopePtr& scope) {
  if (target.kind == NodeKind::name) return scope->set(target.text, std::move(value));
  if (target.kind == NodeKind::attribute) {
    const Value name_space = evaluate(*target.children[0], scope);
    auto* object =
        name_space.is(Kind::object) ? dynamic_cast<NameSpace*>(&name_space.as_object()) : nullptr;
    if (object == nullptr) throw TemplateError("cannot assign attribute on non-namespace object");
    return object->set(target.text, std::move(value));
  }
  require_defined(value);
  const Values items = items_of(value, meter_);
  if (items.size() != target.children.size())
    throw TemplateError("cannot unpack " + std::to_string(items.size()) + " values into " +
                        std::to_string(target.children.size()) + " names");
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i], scope);
}

void Evaluator::run_loop(const Node& node, const Value& iterable, const ScopePtr& scope,
                         int depth) {
  std::function<bool(const Value&)> accepts;
  if (node.children[2])
    accepts = [&](const Value& item) {
      return is_true_in(*node.children[2], *node.children[0], item, scope);
    };
  const auto loop = std::make_shared<Loop>(node, iterable, scope, depth, accepts, meter_);
  bool runs_else = true;  // as in Jinja, until an iteration ends without break or continue
  while (auto item = loop->next()) {
    meter_.charge(1);
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    inner->set("loop", Value::object(loop));
    assign(*node.children[0], *std::move(item), inner);
    const Flow flow = run(node.body, inner);
    if (flow == Flow::leave_loop) break;
    if (flow == Flow::normal) runs_else = false;
  }
  loop->forget_condition();
  if (runs_else) {
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    run(node.otherwise, inner);
  }
}

std::string Evaluator::capture_loop(const Node& node, const Value& iterable, const ScopePtr& scope,
                                    int depth) {
  const Level level(*this, node.line);
  std::string outer = std::exchange(out_, {});
  run_loop(node, iterable, scope, depth);
  std::swap(outer, out_);
  return outer;
}

bool Evaluator::is_true_in(const Node& condition, const Node& target, const Value& item,
                           const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  assign(target, item, inner);
  return is_true(evaluate(condition, inner));
}

Value Evaluator::make_macro(const Node& node, const ScopePtr& scope) {
  macro_scopes_.push_back(scope);
  return Value::object(std::make_shared<Macro>(node, scope));
}

void Evaluator::bind_macro_arguments(const Node& macro, const ScopePtr& inner,
                                     Arguments arguments) {
  const auto uses = [&](const char* name) {
    return std::find(macro.signs.begin(), macro.signs.end(), name) != macro.signs.end();
  };
  auto& keywords = arguments.keywords;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto found = std::find_if(keywords.begin(), keywords.end(),
                                    [&](const auto& keyword) { return keyword.first == name; });
    if (found == keywords.end()) return std::nullopt;
    Value value = std::move(found->second);
    keywords.erase(found);
    return value;
  };
  std::size_t place = 0;
  for (const Parameter& parameter : macro.parameters) {
    std::optional<Value> value;
    if (place < arguments.positional.size()) {
      value = arguments.positional[place++];
    } else {
      value = take(parameter.name);
    }
    if (!value && parameter.otherwise) value = evaluate(*parameter.otherwise, inner);
    if (!value)
      value = Value::undefined("parameter " + text_repr(parameter.name) + " was not provided");
    inner->set(parameter.name, *std::move(value));
  }
  if (uses("caller"))
    inner->set("caller", take("caller").value_or(Value::undefined("No caller defined")));
  if (uses("kwargs")) {
    Dict rest;
    for (auto& [name, value] : keywords) rest.set(Value::text(name), value, meter_);
    inner->set("kwargs", Value::dict(std::move(rest)));
  } else if (!keywords.empty()) {
    throw TemplateError("macro '" + macro.text + "' takes no keyword argument '" +
                        keywords[0].first + "'");
  }
  const auto first_extra = arguments.positional.begin() + static_cast<std::ptrdiff_t>(place);
  if (uses("varargs")) {
    inner->set("varargs", Value::tuple(Values(first_extra, arguments.positional.end())));
  } else if (first_extra != arguments.positional.end()) {
    throw TemplateError("macro '" + macro.text + "' takes not more than " +
                        std::to_string(macro.parameters.size()) + " argument(s)");
  }
}

Value Evaluator::call_macro(const Node& macro, const ScopePtr& scope, Arguments arguments) {
  const Level level(*this, line_);
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  bind_macro_arguments(macro, inner, std::move(arguments));
  return Value::text(capture(macro.body, inner));
}

Value Evaluator::apply_filter(const std::string& name, const Value& input, Arguments arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) throw TemplateError("the filter '" + name + "' is not supported");
  return filter(*this, input, std::move(arguments));
}

bool Evaluator::apply_test(const std::string& name, const Value& input, Arguments arguments) {
  const Test test = find_test(name);
  if (test == nullptr) throw TemplateError("the test '" + name + "' is not supported");
  return test(*this, input, std::move(arguments));
}

}  // namespace megatron::chat
