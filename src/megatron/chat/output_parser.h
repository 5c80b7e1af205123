// Divides the text of a model into reasoning, content and calls of tools while it is generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/chat/output_format.h"
#include "megatron/tokenizers/chat/value.h"

namespace megatron {

enum class OutputKind : std::uint8_t { reasoning, content, call };

/// What is new of a text, up to where its kind changes.
struct OutputPart {
  OutputKind kind = OutputKind::content;
  std::string text = {};      ///< of a call: its arguments, of which all parts make a JSON object
  std::size_t call = 0;       ///< index of the call
  std::string id = {}, name;  ///< of the first part of a call, whose text may be ""
};
using OutputDelta = std::vector<OutputPart>;

struct OutputParserOptions {
  OutputFormat format;
  std::string_view prompt = {};  ///< its end says whether the text begins with reasoning
  bool continues = false;        ///< the text goes on with the message that ends the prompt
  chat::Value tools = {};        ///< those of the request; None: calls are content
  std::string id_seed = {};      ///< such as the request's id: makes the ids of calls unique
};

/// Returns whether the text after a prompt begins within reasoning: the prompt's end says so, or
/// the format. `continues` as in OutputParserOptions: then it is the last tag that says so.
bool begins_with_reasoning(const ReasoningFormat& format, std::string_view prompt, bool continues);

/// Parses one text. Parts that look like calls but cannot be read are content; apart from tags and
/// white space around reasoning and calls, nothing is lost. A call whose arguments turn out wrong
/// ends with those before, and one in which the text ends stays cut, so that nobody runs it.
/// Not thread-safe.
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
