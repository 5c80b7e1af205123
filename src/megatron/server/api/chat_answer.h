// The answer to a conversation: parts of reasoning, text and calls of tools, as they come, and the
// interface of what writes them in the form of an API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/chat/output_parser.h"
#include "megatron/inference/completions/completion_response.h"

namespace megatron {

class Tokenizer;

struct ChatPart {
  OutputKind kind = OutputKind::content;
  std::string text = {};                  ///< of a call: its arguments, as JSON
  std::string name = {}, id;              ///< of a call
  std::vector<SampledToken> tokens = {};  ///< whose text it is; not those of tags
};

/// One text that answers a conversation.
struct ChatAnswer {
  std::int64_t index = 0;
  std::vector<ChatPart> parts = {};
  std::vector<std::int64_t> ids = {};  ///< all tokens, with a stop token
  std::int64_t reasoning_tokens = 0;
  std::optional<FinishReason> finish = {};
  std::optional<SampledToken> stop_token = {};   ///< that ended the text; in no part
  std::string stop_string = {};                  ///< likewise
  JsonText stop_reason = {};                     ///< vLLM's
  std::vector<SampledToken> prompt_tokens = {};  ///< of the first answer, if they are scored
  /// Those of Generation.
  std::vector<std::vector<std::vector<std::int32_t>>> routed_experts = {};

  /// Returns the text of all parts of a kind.
  std::string text_of(OutputKind kind) const;
  /// Returns whether what comes next, such as the stop token, belongs to the text.
  bool is_in_text() const { return parts.empty() || parts.back().kind == OutputKind::content; }
  /// Returns the number of calls.
  std::int64_t num_calls() const;
};

/// New tokens of a part, and the text that they add to it.
struct ChatDelta {
  std::string text;
  std::vector<SampledToken> tokens;  ///< of the text
  std::vector<std::int64_t> ids;     ///< all since the last delta, with those of tags
};

/// Writes answers in the form of one API: either all at the end by body(), or a stream of events,
/// which the other functions return in the order of their calls. A part of an answer ends before
/// the next one begins; several answers may alternate.
class ChatWriter {
 public:
  virtual ~ChatWriter() = default;
  virtual std::string begin() { return ""; }
  /// The part is the last of the answer; add() is called when it has the text already.
  virtual std::string begin_part(const ChatAnswer& /*answer*/) { return ""; }
  virtual std::string add(const ChatAnswer& answer, const ChatDelta& delta) = 0;
  virtual std::string end_part(const ChatAnswer& /*answer*/) { return ""; }
  /// The text has ended. `rest` has the ids of tags, and the stop token.
  virtual std::string end_answer(const ChatAnswer& /*answer*/, const ChatDelta& /*rest*/) {
    return "";
  }
  virtual std::string end(const std::vector<ChatAnswer>& answers, const CompletionUsage& usage) = 0;
  virtual std::string body(const std::vector<ChatAnswer>& answers,
                           const CompletionUsage& usage) = 0;
  /// Returns the event that ends a stream with an error.
  virtual std::string error_event(const ErrorReply& error) = 0;
};

/// Returns an event of a stream; `name` is "" for one without a name.
std::string stream_event(const JsonText& data, std::string_view name = {});

/// Returns a list of {"token", "logprob", "bytes", "top_logprobs"}; tokens are "token_id:ID" if
/// `as_ids`.
JsonText chat_logprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens,
                       bool as_ids);

}  // namespace megatron
