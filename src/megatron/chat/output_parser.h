// Divides the text of a model into reasoning, content and calls of tools while it is generated.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/chat/output_format.h"
#include "megatron/tokenizers/chat/value.h"

namespace megatron {

/// What is new of one call. The first piece of a call has its id and name, and the arguments of all
/// its pieces make up a JSON object.
struct ToolCallDelta {
  std::size_t index = 0;
  std::string id, name, arguments;
};

/// What is new of a text.
struct OutputDelta {
  std::string reasoning, content;
  std::vector<ToolCallDelta> calls;
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

struct OutputParserOptions {
  OutputFormat format;
  std::string_view prompt = {};  ///< its end says whether the text begins with reasoning
  chat::Value tools = {};        ///< those of the request; None: calls are content
  std::string id_seed = {};      ///< such as the request's id: makes the ids of calls unique
};

/// Parses one text. Parts that look like calls but cannot be read are content; apart from tags and
/// white space around reasoning and calls, nothing is lost. Not thread-safe.
///   OutputParser parser({.format = format, .prompt = prompt, .tools = tools});
///   for (piece : pieces) send(parser.feed(piece));
///   send(parser.finish());
class OutputParser {
 public:
  explicit OutputParser(const OutputParserOptions& options);
  OutputParser(OutputParser&&) noexcept;
  ~OutputParser();

  /// Takes the next piece of the text, which must keep special tokens (valid UTF-8).
  OutputDelta feed(std::string_view piece);
  /// Returns what is left at the end of the text.
  OutputDelta finish();
  /// Returns the number of calls so far, for the finish reason "tool_calls".
  std::size_t num_calls() const;

  class Machine;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace megatron
