#include "megatron/tokenizers/chat/expression_parser.h"

#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {
namespace {

constexpr int kDeepestSource = 150;

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    case TokenKind::end:
      return "the end of the template";
    default:
      return text_repr(token.text);
  }
}

bool is_comparison(const Token& token) {
  if (token.kind != TokenKind::sign) return false;
  const std::string& sign = token.text;
  return sign == "==" || sign == "!=" || sign == "<" || sign == "<=" || sign == ">" || sign == ">=";
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.level_ > kDeepestSource) {
    --parser_.level_;
    parser_.fail("the template is nested deeper than " + std::to_string(kDeepestSource) +
                 " levels");
  }
}

bool ExpressionParser::at_sign(std::string_view text) const {
  return current().kind == TokenKind::sign && current().text == text;
}
bool ExpressionParser::at_word(std::string_view text) const {
  return current().kind == TokenKind::name && current().text == text;
}
bool ExpressionParser::skip_sign(std::string_view text) {
  return at_sign(text) ? (advance(), true) : false;
}
bool ExpressionParser::skip_word(std::string_view text) {
  return at_word(text) ? (advance(), true) : false;
}
void ExpressionParser::expect_sign(std::string_view text) {
  if (!skip_sign(text)) fail_expected("'" + std::string(text) + "'");
}
std::string ExpressionParser::expect_name() {
  if (current().kind != TokenKind::name) fail_expected("a name");
  std::string name = current().text;
  advance();
  return name;
}
void ExpressionParser::fail(const std::string& message) const {
  throw TemplateError(message, current().line);
}
void ExpressionParser::fail_expected(const std::string& what) const {
  fail("expected " + what + ", got " + describe(current()));
}

NodePtr ExpressionParser::node(NodeKind kind, std::string text) const {
  auto result = std::make_unique<Node>();
  result->kind = kind;
  result->line = current().line;
  result->text = std::move(text);
  return result;
}

NodePtr ExpressionParser::binary(NodePtr left, const std::string& sign, NodePtr right,
                                 NodeKind kind) const {
  NodePtr result = node(kind, sign);
  result->line = left->line;
  result->add(std::move(left));
  result->add(std::move(right));
  return result;
}

bool ExpressionParser::at_tuple_end(std::string_view end_word) const {
  return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
         at_sign(")") || (!end_word.empty() && at_word(end_word));
}

NodePtr ExpressionParser::parse_tuple(bool with_condition, bool simple, std::string_view end_word) {
  NodePtr tuple = node(NodeKind::tuple);
  bool is_tuple = false;
  for (;;) {
    if (!tuple->children.empty()) expect_sign(",");
    if (at_tuple_end(end_word)) break;
    tuple->add(simple ? parse_primary() : parse_expression(with_condition));
    if (!at_sign(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple->children.empty()) fail_expected("an expression");
  return std::move(tuple->children.front());
}

NodePtr ExpressionParser::parse_expression(bool with_condition) {
  return with_condition ? parse_condition() : parse_or();
}

NodePtr ExpressionParser::parse_condition() {
  const Level level(*this);
  NodePtr value = parse_or();
  while (at_word("if")) {
    NodePtr condition = node(NodeKind::condition);
    advance();
    condition->add(parse_or());
    condition->add(std::move(value));
    condition->add(skip_word("else") ? parse_condition() : nullptr);
    value = std::move(condition);
  }
  return value;
}

NodePtr ExpressionParser::parse_or() {
  NodePtr left = parse_and();
  while (skip_word("or")) left = binary(std::move(left), "or", parse_and(), NodeKind::logical);
  return left;
}

NodePtr ExpressionParser::parse_and() {
  NodePtr left = parse_not();
  while (skip_word("and")) left = binary(std::move(left), "and", parse_not(), NodeKind::logical);
  return left;
}

NodePtr ExpressionParser::parse_not() {
  if (!at_word("not")) return parse_comparison();
  const Level level(*this);
  NodePtr result = node(NodeKind::unary, "not");
  advance();
  result->add(parse_not());
  return result;
}

NodePtr ExpressionParser::parse_comparison() {
  NodePtr result = node(NodeKind::comparison);
  result->add(parse_sum());
  for (;;) {
    if (is_comparison(current())) {
      result->signs.push_back(current().text);
      advance();
    } else if (skip_word("in")) {
      result->signs.emplace_back("in");
    } else if (at_word("not") && following().kind == TokenKind::name && following().text == "in") {
      advance();
      advance();
      result->signs.emplace_back("not in");
    } else {
      break;
    }
    result->add(parse_sum());
  }
  return result->signs.empty() ? std::move(result->children.front()) : std::move(result);
}

NodePtr ExpressionParser::parse_sum() {
  NodePtr left = parse_concat();
  while (at_sign("+") || at_sign("-")) {
    const std::string sign = current().text;
    advance();
    left = binary(std::move(left), sign, parse_concat(), NodeKind::binary);
  }
  return left;
}

NodePtr ExpressionParser::parse_concat() {
  NodePtr first = parse_term();
  if (!at_sign("~")) return first;
  NodePtr result = node(NodeKind::concat);
  result->add(std::move(first));
  while (skip_sign("~")) result->add(parse_term());
  return result;
}

NodePtr ExpressionParser::parse_term() {
  NodePtr left = parse_power();
  while (at_sign("*") || at_sign("/") || at_sign("//") || at_sign("%")) {
    const std::string sign = current().text;
    advance();
    left = binary(std::move(left), sign, parse_power(), NodeKind::binary);
  }
  return left;
}

NodePtr ExpressionParser::parse_power() {
  NodePtr left = parse_unary();
  while (skip_sign("**")) left = binary(std::move(left), "**", parse_unary(), NodeKind::binary);
  return left;
}

NodePtr ExpressionParser::parse_unary(bool with_filters) {
  NodePtr result;
  if (at_sign("-") || at_sign("+")) {
    const Level level(*this);
    result = node(NodeKind::unary, current().text);
    advance();
    result->add(parse_unary(false));
  } else {
    result = parse_primary();
  }
  result = parse_postfix(std::move(result));
  if (!with_filters) return result;
  for (;;) {
    if (at_sign("|")) {
      result = parse_filters(std::move(result));
    } else if (at_word("is")) {
      result = parse_test(std::move(result));
    } else if (at_sign("(")) {
      result = parse_call(std::move(result));
    } else {
      return result;
    }
  }
}

NodePtr ExpressionParser::parse_filters(NodePtr input, bool starts_inline) {
  while (at_sign("|") || starts_inline) {
    if (!starts_inline) advance();
    starts_inline = false;
    NodePtr filter = node(NodeKind::filter);
    filter->text = expect_name();
    filter->add(std::move(input));
    if (at_sign("(")) parse_arguments(*filter);
    input = std::move(filter);
  }
  return input;
}

bool ExpressionParser::begins_test_argument() const {
  switch (current().kind) {
    case TokenKind::name:
      return !at_word("else") && !at_word("or") && !at_word("and");
    case TokenKind::string:
    case TokenKind::integer:
    case TokenKind::real:
      return true;
    default:
      return at_sign("[") || at_sign("{");
  }
}

NodePtr ExpressionParser::parse_test(NodePtr input) {
  NodePtr test = node(NodeKind::test);
  advance();
  const bool is_negated = skip_word("not");
  test->text = expect_name();
  test->add(std::move(input));
  if (at_sign("(")) {
    parse_arguments(*test);
  } else if (begins_test_argument()) {
    if (at_word("is")) fail("tests cannot be chained with 'is'");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
    test->deepen(test->arguments.positional.front().get());
  }
  if (!is_negated) return test;
  NodePtr result = node(NodeKind::unary, "not");
  result->add(std::move(test));
  return result;
}

std::vector<Parameter> ExpressionParser::parse_parameters() {
  std::vector<Parameter> parameters;
  expect_sign("(");
  while (!at_sign(")")) {
    if (!parameters.empty()) expect_sign(",");
    Parameter parameter;
    parameter.name = expect_name();
    if (skip_sign("=")) {
      parameter.otherwise = parse_expression();
    } else if (!parameters.empty() && parameters.back().otherwise) {
      fail("a parameter without a default follows one with a default");
    }
    parameters.push_back(std::move(parameter));
  }
  expect_sign(")");
  return parameters;
}

NodePtr ExpressionParser::parse_target(bool allows_attribute, std::string_view end_word) {
  if (allows_attribute && current().kind == TokenKind::name &&
      following().kind == TokenKind::sign && following().text == ".") {
    NodePtr result = node(NodeKind::attribute);
    NodePtr name_space = node(NodeKind::name, expect_name());
    advance();
    result->text = expect_name();
    result->add(std::move(name_space));
    return result;
  }
  NodePtr target = parse_tuple(false, true, end_word);
  const auto is_name = [](const NodePtr& part) { return part->kind == NodeKind::name; };
  const bool is_names = target->kind == NodeKind::tuple &&
                        std::all_of(target->children.begin(), target->children.end(), is_name);
  if (!is_name(target) && !is_names) fail("only names can be assigned to");
  return target;
}

}  // namespace megatron::chat
