// Splits the text of a template into tokens, with the white-space rules that transformers sets:
// trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron::chat {

enum class TokenKind {
  data,            ///< text between tags; `text` holds it
  variable_begin,  ///< {{
  variable_end,    ///< }}
  block_begin,     ///< {%
  block_end,       ///< %}
  name,
  string,  ///< `text` holds the characters without quotes and escapes
  integer,
  real,
  sign,  ///< an operator; `text` holds it
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 0;
};

/// Returns the tokens of a template and a last one of kind `end`. Throws a TemplateError with the
/// line of the mistake.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace megatron::chat
