// Parses operands: literals, names, subscripts and calls.
#include <charconv>

#include "megatron/tokenizers/chat/expression_parser.h"

namespace megatron::chat {
namespace {

Value constant_of(const Token& token) {
  if (token.kind == TokenKind::string) return Value::text(token.text);
  if (token.kind == TokenKind::real) return Value::real(std::strtod(token.text.c_str(), nullptr));
  std::string_view digits = token.text;
  const char letter = digits.size() > 1 ? static_cast<char>(digits[1] | 0x20) : '0';
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  if (base != 10) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc()) throw TemplateError("an integer is beyond 64 bits", token.line);
  return Value::integer(value);
}

std::optional<Value> word_constant(const std::string& word) {
  if (word == "true" || word == "True") return Value::boolean(true);
  if (word == "false" || word == "False") return Value::boolean(false);
  if (word == "none" || word == "None") return Value();
  return std::nullopt;
}

}  // namespace

NodePtr ExpressionParser::parse_primary() {
  const Level level(*this);
  NodePtr result = node(NodeKind::constant);
  switch (current().kind) {
    case TokenKind::name:
      if (auto constant = word_constant(current().text)) {
        result->value = *std::move(constant);
      } else {
        result->kind = NodeKind::name;
        result->text = current().text;
        names_.insert(current().text);
      }
      advance();
      return result;
    case TokenKind::string: {
      std::string text;
      for (; current().kind == TokenKind::string; advance()) text += current().text;
      result->value = Value::text(std::move(text));
      return result;
    }
    case TokenKind::integer:
    case TokenKind::real:
      result->value = constant_of(current());
      advance();
      return result;
    default:
      break;
  }
  if (at_sign("[")) return parse_list();
  if (at_sign("{")) return parse_dict();
  if (!skip_sign("(")) fail_expected("an expression");
  if (skip_sign(")")) return node(NodeKind::tuple);
  NodePtr inner = parse_tuple();
  expect_sign(")");
  return inner;
}

NodePtr ExpressionParser::parse_list() {
  NodePtr list = node(NodeKind::list);
  expect_sign("[");
  while (!at_sign("]")) {
    if (!list->children.empty()) expect_sign(",");
    if (at_sign("]")) break;
    list->add(parse_expression());
  }
  expect_sign("]");
  return list;
}

NodePtr ExpressionParser::parse_dict() {
  NodePtr dict = node(NodeKind::dict);
  expect_sign("{");
  while (!at_sign("}")) {
    if (!dict->children.empty()) expect_sign(",");
    if (at_sign("}")) break;
    dict->add(parse_expression());
    expect_sign(":");
    dict->add(parse_expression());
  }
  expect_sign("}");
  return dict;
}

NodePtr ExpressionParser::parse_postfix(NodePtr operand) {
  for (;;) {
    if (at_sign(".")) {
      NodePtr result = node(NodeKind::attribute);
      advance();
      if (current().kind == TokenKind::integer) {
        result->kind = NodeKind::item;
        result->add(std::move(operand));
        NodePtr index = node(NodeKind::constant);
        index->value = constant_of(current());
        result->add(std::move(index));
        advance();
      } else {
        result->text = expect_name();
        result->add(std::move(operand));
      }
      operand = std::move(result);
    } else if (at_sign("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (at_sign("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

NodePtr ExpressionParser::parse_subscript(NodePtr operand) {
  NodePtr result = node(NodeKind::item);
  expect_sign("[");
  if (at_sign(":")) return parse_slice(std::move(operand), nullptr);
  NodePtr key = parse_expression();
  if (at_sign(":")) return parse_slice(std::move(operand), std::move(key));
  if (at_sign(",")) {
    NodePtr tuple = node(NodeKind::tuple);
    tuple->add(std::move(key));
    while (skip_sign(",") && !at_sign("]")) tuple->add(parse_expression());
    key = std::move(tuple);
  }
  expect_sign("]");
  result->add(std::move(operand));
  result->add(std::move(key));
  return result;
}

NodePtr ExpressionParser::parse_slice(NodePtr operand, NodePtr first) {
  NodePtr slice = node(NodeKind::slice);
  slice->add(std::move(operand));
  slice->add(std::move(first));
  expect_sign(":");
  const auto at_part_end = [&] { return at_sign(":") || at_sign("]"); };
  slice->add(at_part_end() ? nullptr : parse_expression());
  slice->add(skip_sign(":") && !at_sign("]") ? parse_expression() : nullptr);
  expect_sign("]");
  return slice;
}

NodePtr ExpressionParser::parse_call(NodePtr function) {
  NodePtr call = node(NodeKind::call);
  call->add(std::move(function));
  parse_arguments(*call);
  return call;
}

void ExpressionParser::parse_arguments(Node& call) {
  call.arguments = parse_arguments();
  for (const NodePtr& argument : call.arguments.positional) call.deepen(argument.get());
  for (const auto& [name, argument] : call.arguments.keywords) call.deepen(argument.get());
  call.deepen(call.arguments.spread_list.get());
  call.deepen(call.arguments.spread_dict.get());
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  const auto check = [&](bool is_in_order) {
    if (!is_in_order) fail("the arguments of a call are in the wrong order");
  };
  expect_sign("(");
  for (bool first = true; !at_sign(")"); first = false) {
    if (!first) expect_sign(",");
    if (at_sign(")")) break;
    if (skip_sign("*")) {
      check(!arguments.spread_list && !arguments.spread_dict);
      arguments.spread_list = parse_expression();
    } else if (skip_sign("**")) {
      check(!arguments.spread_dict);
      arguments.spread_dict = parse_expression();
    } else if (current().kind == TokenKind::name && following().kind == TokenKind::sign &&
               following().text == "=") {
      check(!arguments.spread_dict);
      std::string name = expect_name();
      advance();
      arguments.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      check(!arguments.spread_list && !arguments.spread_dict && arguments.keywords.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_sign(")");
  return arguments;
}

}  // namespace megatron::chat
