#include "megatron/datasets/prompt_format.h"

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/multimodal_tokenizer.h"

namespace megatron {
namespace {

constexpr const char* kUnknownToken = "<unk>";

bool is_question(const std::string& role) { return role == "user" || role == "tool"; }

const Tokenizer& checked(const std::shared_ptr<const Tokenizer>& tokenizer) {
  MEGATRON_CHECK(tokenizer != nullptr, "conversations need a tokenizer");
  return *tokenizer;
}

[[noreturn]] void refuse(const Conversation& conversation, std::size_t turn,
                         const std::string& where, const std::string& what,
                         const std::string& fix = "") {
  throw UserError({where + ": message " + std::to_string(turn + 1) + " of a conversation " + what,
                   "its role is " + conversation[turn].role, fix});
}

}  // namespace

PromptFormat::PromptFormat(const std::string& sft_format,
                           std::shared_ptr<const Tokenizer> tokenizer, const ChatFiles& files)
    : text_(sft_format, checked(tokenizer), files), tokenizer_(std::move(tokenizer)) {
  const char* token = text_.kind().pad_token;
  pad_ = token != nullptr ? tokenizer_->find(token) : tokenizer_->pad();
  if (pad_ >= 0) return;
  if (token != nullptr) {
    pad_ = tokenizer_->find(kUnknownToken);
  } else if (!text_.is_multimodal()) {
    pad_ = tokenizer_->eod();
  }
  if (pad_ >= 0) return;
  const std::string what = text_.flag() + " fills samples with a token";
  if (token != nullptr)
    throw UserError({what,
                     token == std::string_view(kUnknownToken)
                         ? "the tokenizer has no <unk>"
                         : std::string("the tokenizer has neither ") + token + " nor <unk>",
                     "use the tokenizer of this format, or add the token to yours"});
  throw UserError({what, "the tokenizer has no padding token",
                   "name one as pad_token in its tokenizer_config.json"});
}

void PromptFormat::check(const Conversation& conversation, std::size_t turn,
                         const std::string& where) const {
  const bool is_multimodal = text_.is_multimodal();
  const Message& message = conversation[turn];
  const std::string role = chat::lower(message.role);
  const bool is_answer = role == "assistant";
  if (!is_answer && role != "system" && role != "user" && (is_multimodal || role != "tool"))
    refuse(conversation, turn, where, "has an unknown role",
           is_multimodal ? "use system, user or assistant" : "use system, user, tool or assistant");
  if (message.content.empty() && (is_answer || is_multimodal))
    refuse(conversation, turn, where, is_answer ? "is an empty answer" : "is empty");
  if (!is_answer) return;
  if (!text_.kind().assistant_prefix)
    throw UserError({text_.flag() + " is a format for generation", "its answers have no loss",
                     "use another format, or only questions"});
  if (is_multimodal && message.content.find(kImageToken) != std::string::npos)
    refuse(conversation, turn, where, "is an answer with an image",
           "leave " + std::string(kImageToken) + " out");
  if (!is_multimodal && (turn == 0 || !is_question(chat::lower(conversation[turn - 1].role))))
    refuse(conversation, turn, where, "answers no question",
           "put a message of the user before each answer");
}

PromptFormat::Tokens PromptFormat::tokenize(const Conversation& conversation,
                                            const std::string& where) const {
  const PromptKind& kind = text_.kind();
  const Conversation turns = text_.prepare(conversation);
  const std::vector<std::int32_t> ids = tokenizer_->encode_fragment(text_.text(turns, where));
  Tokens tokens{.ids = {ids.begin(), ids.end()}, .targets = {ids.begin(), ids.end()}};
  if (kind.trains_on_everything) return tokens;
  if (turns.empty() && !conversation.empty())
    throw UserError({where + ": a conversation has no messages besides the system's", "", ""});
  std::size_t at = 0;
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    check(turns, turn, where);
    std::vector<std::int32_t> part = tokenizer_->encode_fragment(text_.text({turns[turn]}, where));
    if (kind.begins_with_bos && turn > 0 && !part.empty()) part.erase(part.begin());
    if (part.size() > ids.size() - at ||
        !std::equal(part.begin(), part.end(), ids.begin() + static_cast<std::ptrdiff_t>(at)))
      refuse(turns, turn, where,
             "shares a token with its neighbors, so that its loss cannot be separated",
             "use a format whose messages begin and end with special tokens");
    const bool is_answer = chat::lower(turns[turn].role) == "assistant";
    const std::size_t ignored =
        is_answer ? std::min(kind.assistant_prefix.value_or(0), part.size()) : part.size();
    std::fill_n(tokens.targets.begin() + static_cast<std::ptrdiff_t>(at), ignored, kIgnoredLabel);
    at += part.size();
  }
  if (at != ids.size())
    refuse(turns, turns.size() - 1, where, "has tokens that belong to no message",
           "use a format whose messages begin and end with special tokens");
  return tokens;
}

}  // namespace megatron
