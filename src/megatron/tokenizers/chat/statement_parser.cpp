// Parses the statements of templates.
#include "megatron/tokenizers/chat/expression_parser.h"

namespace megatron::chat {
namespace {

class StatementParser : ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Nodes parse() { return parse_until({}, nullptr); }

 private:
  using Words = std::initializer_list<std::string_view>;

  void expect_block_end() {
    if (current().kind != TokenKind::block_end) fail_expected("'%}'");
    advance();
  }

  /// Parses statements until a tag that one of `end_words` begins, which becomes the current token.
  /// Without end words, parses the whole template. `opening` is the statement they belong to.
  Nodes parse_until(Words end_words, Node* opening) {
    const Level level(*this);
    Nodes body;
    const auto add = [&](NodePtr part) {
      if (opening != nullptr) opening->deepen(part.get());
      body.push_back(std::move(part));
    };
    for (;;) {
      switch (current().kind) {
        case TokenKind::data:
          add(parse_data());
          break;
        case TokenKind::variable_begin:
          add(parse_output());
          break;
        case TokenKind::block_begin:
          advance();
          for (const std::string_view word : end_words)
            if (at_word(word)) return body;
          if (NodePtr part = parse_statement()) add(std::move(part));
          expect_block_end();
          break;
        default:
          if (end_words.size() == 0) return body;
          throw TemplateError("the block '" + opening->text + "' does not end", opening->line);
      }
    }
  }

  /// Parses the rest of an opening tag and the statements up to an end word.
  Nodes parse_body(Words end_words, Node* opening) {
    skip_sign(":");
    expect_block_end();
    return parse_until(end_words, opening);
  }
  Nodes parse_whole_body(std::string_view end_word, Node* opening) {
    Nodes body = parse_body({end_word}, opening);
    advance();
    return body;
  }

  NodePtr parse_data() {
    NodePtr result = node(NodeKind::output);
    result->value = Value::text(current().text);
    advance();
    return result;
  }

  NodePtr parse_output() {
    NodePtr result = node(NodeKind::output);
    advance();
    result->add(parse_tuple());
    if (current().kind != TokenKind::variable_end) fail_expected("'}}'");
    advance();
    return result;
  }

  NodePtr parse_statement() {
    if (current().kind != TokenKind::name) fail_expected("the name of a tag");
    const std::string tag = current().text;
    NodePtr result = node(NodeKind::output);
    result->text = tag;
    advance();
    if (tag == "set") return parse_set(std::move(result));
    if (tag == "for") return parse_for(std::move(result));
    if (tag == "if") return parse_if(std::move(result));
    if (tag == "macro") return parse_macro(std::move(result));
    if (tag == "call") return parse_call_block(std::move(result));
    if (tag == "filter") return parse_filter_block(std::move(result));
    if (tag == "with") return parse_with(std::move(result));
    if (tag == "generation") {
      result->kind = NodeKind::generation;
      result->body = parse_function_body("endgeneration", result.get());
      return result;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail("'" + tag + "' outside of a loop");
      result->kind = tag == "break" ? NodeKind::break_loop : NodeKind::continue_loop;
      return result;
    }
    throw TemplateError("unknown tag '" + tag + "'", result->line);
  }

  NodePtr parse_set(NodePtr result) {
    result->kind = NodeKind::set;
    result->add(parse_target(true));
    if (skip_sign("=")) {
      result->add(parse_tuple());
      return result;
    }
    result->kind = NodeKind::set_block;
    result->add(parse_filters(nullptr));
    result->body = parse_whole_body("endset", result.get());
    return result;
  }

  NodePtr parse_for(NodePtr result) {
    result->kind = NodeKind::for_loop;
    result->add(parse_target(false, "in"));
    if (!skip_word("in")) fail_expected("'in'");
    result->add(parse_tuple(false, false, "recursive"));
    result->add(skip_word("if") ? parse_expression() : nullptr);
    result->is_recursive = skip_word("recursive");
    ++loops_;
    result->body = parse_body({"endfor", "else"}, result.get());
    --loops_;
    if (skip_word("else")) result->otherwise = parse_body({"endfor"}, result.get());
    advance();
    return result;
  }

  NodePtr parse_if(NodePtr result) {
    result->kind = NodeKind::if_else;
    do {
      result->add(parse_tuple(false));
      result->branches.push_back(parse_body({"elif", "else", "endif"}, result.get()));
    } while (skip_word("elif"));
    if (skip_word("else")) result->otherwise = parse_body({"endif"}, result.get());
    advance();
    return result;
  }

  /// Parses a body that is a function of its own: break and continue cannot leave it.
  Nodes parse_function_body(std::string_view end_word, Node* opening) {
    const int loops = std::exchange(loops_, 0);
    const std::set<std::string> names_before = take_names();
    Nodes body = parse_whole_body(end_word, opening);
    const std::set<std::string> names = take_names();
    for (const char* name : {"varargs", "kwargs", "caller"})
      if (names.contains(name)) opening->signs.emplace_back(name);
    add_names(names_before);
    add_names(names);
    loops_ = loops;
    return body;
  }

  void deepen_by_defaults(Node& node) {
    for (const Parameter& parameter : node.parameters) node.deepen(parameter.otherwise.get());
  }

  NodePtr parse_macro(NodePtr result) {
    result->kind = NodeKind::macro;
    const std::string name = expect_name();
    result->parameters = parse_parameters();
    deepen_by_defaults(*result);
    result->body = parse_function_body("endmacro", result.get());
    result->text = name;
    return result;
  }

  NodePtr parse_call_block(NodePtr result) {
    result->kind = NodeKind::call_block;
    if (at_sign("(")) result->parameters = parse_parameters();
    deepen_by_defaults(*result);
    result->add(parse_expression());
    if (result->children[0]->kind != NodeKind::call)
      throw TemplateError("expected a call after 'call'", result->line);
    result->body = parse_function_body("endcall", result.get());
    return result;
  }

  NodePtr parse_filter_block(NodePtr result) {
    result->kind = NodeKind::filter_block;
    result->add(parse_filters(nullptr, true));
    result->body = parse_whole_body("endfilter", result.get());
    return result;
  }

  NodePtr parse_with(NodePtr result) {
    result->kind = NodeKind::with;
    while (current().kind != TokenKind::block_end) {
      if (!result->children.empty()) expect_sign(",");
      result->add(parse_target(false));
      expect_sign("=");
      result->add(parse_expression());
    }
    result->body = parse_whole_body("endwith", result.get());
    return result;
  }

  int loops_ = 0;
};

}  // namespace

Nodes parse_template(std::string_view source) {
  return StatementParser(tokenize_template(source)).parse();
}

}  // namespace megatron::chat
