// Evaluates the expressions of templates.
#include "megatron/tokenizers/chat/evaluator.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"

namespace megatron::chat {
namespace {

Arithmetic arithmetic_of(const std::string& sign) {
  if (sign == "+") return Arithmetic::add;
  if (sign == "-") return Arithmetic::subtract;
  if (sign == "*") return Arithmetic::multiply;
  if (sign == "/") return Arithmetic::divide;
  if (sign == "//") return Arithmetic::floor_divide;
  return sign == "%" ? Arithmetic::modulo : Arithmetic::power;
}

bool is_nan(const Value& value) {
  return value.is(Kind::real) && value.as_real() != value.as_real();
}

bool holds(const std::string& sign, const Value& left, const Value& right, Meter& meter) {
  if (sign == "==") return equals(left, right, meter);
  if (sign == "!=") return !equals(left, right, meter);
  if (sign == "in") return contains(right, left, meter);
  if (sign == "not in") return !contains(right, left, meter);
  const int order = compare(left, right, sign.c_str(), meter);
  if (is_nan(left) || is_nan(right)) return false;
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

}  // namespace

Value Evaluator::evaluate(const Node& node, const ScopePtr& scope) {
  const Level level(*this, node.line);
  switch (node.kind) {
    case NodeKind::constant:
      return node.value;
    case NodeKind::name:
      return evaluate_name(node, scope);
    case NodeKind::list:
    case NodeKind::tuple:
      return evaluate_items(node, scope);
    case NodeKind::dict:
      return evaluate_dict(node, scope);
    case NodeKind::attribute: {
      const Value object = evaluate(*node.children[0], scope);
      line_ = node.line;
      return get_attribute(object, node.text, meter_);
    }
    case NodeKind::item: {
      const Value object = evaluate(*node.children[0], scope);
      const Value key = evaluate(*node.children[1], scope);
      line_ = node.line;
      return get_item(object, key, meter_);
    }
    case NodeKind::slice: {
      const Value object = evaluate(*node.children[0], scope);
      const Value first = evaluate_optional(node.children[1], scope);
      const Value last = evaluate_optional(node.children[2], scope);
      return get_slice(object, first, last, evaluate_optional(node.children[3], scope), meter_);
    }
    case NodeKind::call:
      return evaluate_call(node, scope);
    case NodeKind::filter:
      return evaluate_filter(node, scope);
    case NodeKind::test: {
      const Value input = evaluate(*node.children[0], scope);
      Arguments arguments = evaluate_arguments(node.arguments, scope);
      line_ = node.line;
      return Value::boolean(apply_test(node.text, input, std::move(arguments)));
    }
    case NodeKind::unary:
      return evaluate_unary(node, scope);
    case NodeKind::binary:
    case NodeKind::logical:
      return evaluate_binary(node, scope);
    case NodeKind::comparison:
      return evaluate_comparison(node, scope);
    case NodeKind::concat:
      return evaluate_concat(node, scope);
    case NodeKind::condition:
      return evaluate_condition(node, scope);
    default:
      throw TemplateError("an expression was expected");
  }
}

Value Evaluator::evaluate_optional(const NodePtr& node, const ScopePtr& scope) {
  return node ? evaluate(*node, scope) : Value();
}

Value Evaluator::evaluate_name(const Node& node, const ScopePtr& scope) {
  const Value* found = scope->find(node.text);
  return found != nullptr ? *found : Value::undefined("'" + node.text + "' is undefined");
}

Value Evaluator::evaluate_items(const Node& node, const ScopePtr& scope) {
  Values items;
  for (const NodePtr& child : node.children) items.push_back(evaluate(*child, scope));
  return node.kind == NodeKind::list ? Value::list(std::move(items))
                                     : Value::tuple(std::move(items));
}

Value Evaluator::evaluate_dict(const Node& node, const ScopePtr& scope) {
  Dict dict;
  for (std::size_t i = 0; i < node.children.size(); i += 2) {
    Value key = evaluate(*node.children[i], scope);
    dict.set(std::move(key), evaluate(*node.children[i + 1], scope), meter_);
  }
  return Value::dict(std::move(dict));
}

Value Evaluator::evaluate_unary(const Node& node, const ScopePtr& scope) {
  const Value operand = evaluate(*node.children[0], scope);
  if (node.text == "not") return Value::boolean(!is_true(operand));
  return negative(operand, node.text == "-");
}

Value Evaluator::evaluate_binary(const Node& node, const ScopePtr& scope) {
  Value left = evaluate(*node.children[0], scope);
  if (node.kind == NodeKind::logical && is_true(left) == (node.text == "or")) return left;
  Value right = evaluate(*node.children[1], scope);
  if (node.kind == NodeKind::logical) return right;
  line_ = node.line;
  return arithmetic(arithmetic_of(node.text), left, right, meter_);
}

Value Evaluator::evaluate_comparison(const Node& node, const ScopePtr& scope) {
  Value left = evaluate(*node.children[0], scope);
  for (std::size_t i = 0; i < node.signs.size(); ++i) {
    Value right = evaluate(*node.children[i + 1], scope);
    line_ = node.line;
    if (!holds(node.signs[i], left, right, meter_)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_concat(const Node& node, const ScopePtr& scope) {
  std::string out;
  for (const NodePtr& child : node.children) {
    const std::string text = to_text(evaluate(*child, scope), meter_);
    meter_.charge_bytes(text.size());
    out += text;
    meter_.check_size(out.size());
  }
  return Value::text(std::move(out));
}

Value Evaluator::evaluate_condition(const Node& node, const ScopePtr& scope) {
  if (is_true(evaluate(*node.children[0], scope))) return evaluate(*node.children[1], scope);
  if (node.children[2]) return evaluate(*node.children[2], scope);
  return Value::undefined("the inline if-expression on line " + std::to_string(node.line) +
                          " evaluated to false and no else section was defined.");
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments, const ScopePtr& scope) {
  Arguments result;
  for (const NodePtr& argument : arguments.positional)
    result.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : arguments.keywords)
    result.keywords.emplace_back(name, evaluate(*argument, scope));
  if (arguments.spread_list)
    for (Value& item : items_of(evaluate(*arguments.spread_list, scope), meter_))
      result.positional.push_back(std::move(item));
  if (!arguments.spread_dict) return result;
  const Value spread = evaluate(*arguments.spread_dict, scope);
  if (!spread.is(Kind::dict)) throw TemplateError("argument after ** must be a mapping");
  for (const auto& [key, value] : spread.as_dict().entries()) {
    if (!key.is_text()) throw TemplateError("keywords must be strings");
    result.keywords.emplace_back(key.as_text(), value);
  }
  return result;
}

Value Evaluator::evaluate_call(const Node& node, const ScopePtr& scope, const Value* caller) {
  const Value function = evaluate(*node.children[0], scope);
  Arguments arguments = evaluate_arguments(node.arguments, scope);
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  line_ = node.line;
  require_defined(function);
  if (!function.is(Kind::object))
    throw TemplateError("'" + type_name(function) + "' object is not callable");
  const auto object = function.shared_object();
  return object->call(*this, std::move(arguments));
}

Value Evaluator::evaluate_filter(const Node& node, const ScopePtr& scope) {
  const Value input = node.children[0] ? evaluate(*node.children[0], scope) : *block_input_;
  Arguments arguments = evaluate_arguments(node.arguments, scope);
  line_ = node.line;
  return apply_filter(node.text, input, std::move(arguments));
}

Value Evaluator::evaluate_block_filter(const Node& filter, Value input, const ScopePtr& scope) {
  const Value* outer = std::exchange(block_input_, &input);
  Value result = evaluate(filter, scope);
  block_input_ = outer;
  return result;
}

}  // namespace megatron::chat
