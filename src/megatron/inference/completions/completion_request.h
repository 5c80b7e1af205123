// A request for completions in OpenAI's form (the body of POST /v1/completions), with the members
// that vLLM adds. A member that is a setting of sampling_table() has its name, bounds and meaning.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/config/sampling_params.h"

namespace megatron {

class JsonCursor;
class Tokenizer;
class UserError;
struct LoadedTokenizer;

/// A text, or token ids.
using CompletionPrompt = std::variant<std::string, std::vector<std::int64_t>>;

struct CompletionRequest {
  std::string model;  ///< as the client calls it; "": it gives no name
  std::vector<CompletionPrompt> prompts;
  /// OpenAI's defaults, such as 16 new tokens. `logprobs` of the request is return_log_probs and
  /// the number of likely tokens, and prompt_logprobs with `echo`; its own `prompt_logprobs` is
  /// prompt_best.
  SamplingParams params = {.max_new_tokens = 16};
  bool echo = false;      ///< the text of a choice begins with the prompt
  bool has_seed = false;  ///< its texts do not depend on its place among the requests
  bool stream = false;    ///< the texts are wanted while they are generated
  std::int64_t priority = 0;
  bool include_usage = false;               ///< a stream ends with the numbers of tokens
  bool return_token_ids = false;            ///< choices have the ids of prompt and text
  bool tokens_as_ids = false;               ///< tokens of "logprobs" are written "token_id:ID"
  bool add_special_tokens = true;           ///< a prompt that is a text gets those of a whole text
  std::int64_t truncate_prompt_tokens = 0;  ///< a prompt is its last so many tokens; 0: all
  std::vector<std::string> given = {};      ///< members of the body that are not null
  bool answers = false;                     ///< an encoder reads the prompts: texts begin anew

  /// Removes the tokens that truncate_prompt_tokens cuts off a prompt.
  void truncate(std::vector<std::int64_t>& ids) const;
};

/// Reads the body of a request. UserError that names the member which is unknown, of a wrong type
/// or out of range.
/// `text` is the JSON that has the body, or has it as its member "body": members of output have the
/// order of the schema there.
CompletionRequest read_completion(const JsonCursor& body, std::string_view text = {});

/// Returns an error in which members of the body take the place of the flags of sampling.
UserError with_members(const UserError& error);

/// Returns the prompts of a value: a text, a list of texts, a list of ids, or a list of such lists.
std::vector<CompletionPrompt> completion_prompts(const JsonCursor& value);

/// Returns the token ids of a prompt. UserError that names `source` when it has none.
std::vector<std::int64_t> completion_ids(const CompletionPrompt& prompt, const Tokenizer& tokenizer,
                                         const std::string& source, bool add_special_tokens = true);

/// Returns the ids of the prompts of a request as the model reads them, and sets
/// CompletionRequest::answers. UserError that names `source`, or a member that has no meaning where
/// an encoder reads the prompts.
std::vector<std::vector<std::int64_t>> ids_of_prompts(CompletionRequest& request,
                                                      const LoadedTokenizer& tokenizer,
                                                      const std::string& source);

/// What the client of an HTTP request is told of an error.
struct ErrorReply {
  int status = 400;
  std::string message = {};
  std::string code = {};   ///< OpenAI's name of the error; "": it has none
  std::string param = {};  ///< the member of the body that is wrong; "": none or several
};
/// Returns status 400 and the message. `param` is the path of the member if the error names exactly
/// one, such as messages[0].role.
ErrorReply error_reply(const UserError& error);
/// Returns the body of an error in OpenAI's form.
JsonText error_json(const ErrorReply& error);

}  // namespace megatron
