// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;

enum class NodeKind {
  // Expressions. `children` holds the operands from left to right.
  constant,    ///< `value`
  name,        ///< `text`
  list,        ///< items
  tuple,       ///< items
  dict,        ///< key, value, key, value, …
  attribute,   ///< object; `text` is the attribute
  item,        ///< object, key
  slice,       ///< object, first, last, step
  call,        ///< function; `arguments`
  filter,      ///< input; `text` is the filter; null as input: the body of a block
  test,        ///< input; `text` is the test
  unary,       ///< operand; `text` is "-", "+" or "not"
  binary,      ///< two operands; `text` is the sign
  comparison,  ///< operands; `signs` holds the signs between them
  concat,      ///< operands of ~
  logical,     ///< two operands; `text` is "and" or "or"
  condition,   ///< test, value, otherwise (null when there is none)

  // Statements. `body` and `otherwise` hold their statements.
  output,      ///< text (`value`), or an expression
  set,         ///< target, expression
  set_block,   ///< target, filter or null; `body`
  for_loop,    ///< target, iterable, condition or null; `body`, `otherwise`
  if_else,     ///< tests; `branches`, `otherwise`
  macro,       ///< `text` is the name; `parameters`; `body`; `signs` holds the names among varargs,
               ///< kwargs and caller that the body uses
  call_block,  ///< call; `parameters`; `body`
  filter_block,  ///< filter; `body`
  with,          ///< target, value, target, value, …; `body`
  generation,    ///< `body`
  break_loop,
  continue_loop,
};

/// A call's arguments. A null `spread` is none.
struct CallArguments {
  Nodes positional;
  std::vector<std::pair<std::string, NodePtr>> keywords;
  NodePtr spread_list, spread_dict;  ///< *list and **dict
};

/// A macro's parameter; `otherwise` is its default or null.
struct Parameter {
  std::string name;
  NodePtr otherwise;
};

struct Node {
  NodeKind kind;
  int line = 0;
  std::string text;
  Value value;
  Nodes children;
  std::vector<std::string> signs;
  CallArguments arguments;
  std::vector<Parameter> parameters;
  Nodes body, otherwise;
  std::vector<Nodes> branches;
  bool is_recursive = false;  ///< of a for_loop
  int depth = 0;              ///< levels of nodes below

  /// Appends a child, which may be null.
  void add(NodePtr child) {
    deepen(child.get());
    children.push_back(std::move(child));
  }
  /// Counts a node that becomes part of this one, and refuses trees too deep to recurse on.
  void deepen(const Node* part) {
    constexpr int kDeepest = 500;
    if (part == nullptr) return;
    depth = std::max(depth, part->depth + 1);
    if (depth > kDeepest)
      throw TemplateError(
          "the template is nested deeper than " + std::to_string(kDeepest) + " levels", line);
  }
};

/// Parses a template. Throws a TemplateError with the line of the mistake.
Nodes parse_template(std::string_view source);

}  // namespace megatron::chat
