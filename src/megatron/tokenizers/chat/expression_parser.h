// Parses the expressions of templates, by Jinja's grammar.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/chat/lexer.h"
#include "megatron/tokenizers/chat/syntax.h"

namespace megatron::chat {

/// Reads tokens from the front. All functions throw a TemplateError with the line of a mistake.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// Parses expressions with commas between them into a tuple, and a single one as it is. With
  /// `simple`, only names, literals and parentheses. `end_word` ends the tuple after a comma.
  NodePtr parse_tuple(bool with_condition = true, bool simple = false,
                      std::string_view end_word = "");
  NodePtr parse_expression(bool with_condition = true);
  /// Parses `name | filter…`; with `starts_inline`, a filter without the first bar.
  NodePtr parse_filters(NodePtr input, bool starts_inline = false);
  std::vector<Parameter> parse_parameters();
  /// Parses what a statement assigns to: a name, names, or namespace.attribute.
  NodePtr parse_target(bool allows_attribute, std::string_view end_word = "");
  NodePtr parse_primary();

  /// Returns a node at the line of the current token.
  NodePtr node(NodeKind kind, std::string text = "") const;
  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool at_sign(std::string_view text) const;
  bool at_word(std::string_view text) const;
  bool skip_sign(std::string_view text);
  bool skip_word(std::string_view text);
  void expect_sign(std::string_view text);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_expected(const std::string& what) const;

  /// Returns the names that were read since the last call.
  std::set<std::string> take_names() { return std::exchange(names_, {}); }
  void add_names(const std::set<std::string>& names) { names_.insert(names.begin(), names.end()); }

  /// Counts the levels of nesting while it lives, and refuses too many.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  NodePtr parse_condition();
  NodePtr parse_or();
  NodePtr parse_and();
  NodePtr parse_not();
  NodePtr parse_comparison();
  NodePtr parse_sum();
  NodePtr parse_concat();
  NodePtr parse_term();
  NodePtr parse_power();
  NodePtr parse_unary(bool with_filters = true);
  NodePtr parse_list();
  NodePtr parse_dict();
  NodePtr parse_postfix(NodePtr operand);
  NodePtr parse_subscript(NodePtr operand);
  NodePtr parse_slice(NodePtr operand, NodePtr first);
  NodePtr parse_call(NodePtr function);
  CallArguments parse_arguments();
  void parse_arguments(Node& call);
  NodePtr parse_test(NodePtr input);
  NodePtr binary(NodePtr left, const std::string& sign, NodePtr right, NodeKind kind) const;
  bool at_tuple_end(std::string_view end_word) const;
  bool begins_test_argument() const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::set<std::string> names_;
};

}  // namespace megatron::chat
