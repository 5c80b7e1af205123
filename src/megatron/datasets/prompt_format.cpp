#include "megatron/datasets/prompt_format.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/chat/chat_template.h"
#include "megatron/tokenizers/chat/json_values.h"
#include "megatron/tokenizers/chat/python_text.h"

namespace megatron {
namespace {

std::string stripped(std::string_view text) {
  return std::string(chat::strip(text, chat::Side::both));
}

std::string without(std::string_view text, std::string_view part) {
  return chat::replace_all(text, part, "", /*limit=*/-1);
}

std::string nemotron_h_aligned(const Message& message) {
  if (message.role == "system") return "<SPECIAL_10>System\n" + stripped(message.content) + "\n";
  if (message.role == "user")
    return "<SPECIAL_11>User\n" + stripped(message.content) + "\n<SPECIAL_11>Assistant\n";
  return message.role == "assistant" ? stripped(message.content) + "\n" : "";
}

/// Leaves out the switches of thinking in questions.
std::string nemotron_nano_v2(const Message& message) {
  if (message.role == "assistant")
    return "<SPECIAL_11>Assistant\n" + stripped(message.content) + "\n<SPECIAL_12>\n";
  const std::string text = stripped(without(without(message.content, "/think"), "/no_think"));
  if (message.role == "system") return "<SPECIAL_10>System\n" + text + "\n";
  return message.role == "user" ? "<SPECIAL_11>User\n" + text + "\n" : "";
}

std::string identity(const Message& message) { return message.content; }

bool is_question(const std::string& role) { return role == "user" || role == "tool"; }

}  // namespace

struct PromptFormat::Kind {
  const char* name;
  std::string (*text)(const Message& message);
  const char* pad_token;
  std::size_t assistant_prefix;  ///< number of tokens before an answer that are not trained on
};

namespace {

constexpr const char* kUnknownToken = "<unk>";

}  // namespace

/// A chat template. Its dates are those of the start of the run.
struct PromptFormat::Template {
  ChatTemplate chat;
  std::vector<std::pair<std::string, chat::Value>> variables;
  std::time_t start = std::time(nullptr);

  std::string text(const Conversation& conversation, const std::string& where) const {
    OrderedJson messages = OrderedJson::array();
    for (const Message& message : conversation)
      messages.push_back({{"role", message.role}, {"content", message.content}});
    const std::string json = messages.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    return chat.render({.messages = chat::read_json_value(json, where), .variables = variables},
                       start);
  }
};

PromptFormat::~PromptFormat() = default;

PromptFormat::PromptFormat(const std::string& name, std::shared_ptr<const Tokenizer> tokenizer,
                           const fs::path& folder)
    : tokenizer_(std::move(tokenizer)) {
  static constexpr std::array kKinds = {
      Kind{"nemotron-h-aligned", nemotron_h_aligned, "<SPECIAL_233>", 0},
      Kind{"nemotron-nano-v2", nemotron_nano_v2, kUnknownToken, 3},
      Kind{"identity", identity, kUnknownToken, 0}};
  MEGATRON_CHECK(tokenizer_ != nullptr, "conversations need a tokenizer");
  if (name == "default") {
    const auto templates = find_chat_templates(folder);
    const auto found = templates.find("default");
    if (found == templates.end())
      throw UserError({"--sft-tokenizer-prompt-format default is the tokenizer's chat template",
                       folder.string() + " has none",
                       "put chat_template.jinja beside the tokenizer's file"});
    template_ = std::make_unique<const Template>(
        Template{.chat = ChatTemplate(found->second.text, found->second.source),
                 .variables = special_token_variables(folder, tokenizer_.get())});
    pad_ = tokenizer_->pad() >= 0 ? tokenizer_->pad() : tokenizer_->eod();
    if (pad_ < 0)
      throw UserError({"--sft-tokenizer-prompt-format default fills samples with a token",
                       "the tokenizer has neither a padding nor an end-of-sequence token",
                       "name one in its tokenizer_config.json"});
    return;
  }
  const auto found =
      std::ranges::find_if(kKinds, [&](const Kind& kind) { return kind.name == name; });
  if (found == kKinds.end())
    throw UserError({"--sft-tokenizer-prompt-format " + name + " does not exist", "",
                     "use nemotron-h-aligned, nemotron-nano-v2, identity or default"});
  kind_ = &*found;
  pad_ = tokenizer_->find(kind_->pad_token);
  if (pad_ < 0) pad_ = tokenizer_->find(kUnknownToken);
  if (pad_ < 0)
    throw UserError({"--sft-tokenizer-prompt-format " + name + " fills samples with the token " +
                         kind_->pad_token,
                     "the tokenizer has neither this token nor <unk>",
                     "use the tokenizer of this format, or add the token to yours"});
}

PromptFormat::Tokens PromptFormat::tokenize(const Conversation& conversation,
                                            const std::string& where) const {
  if (template_) {
    const std::vector<std::int32_t> all =
        tokenizer_->encode_fragment(template_->text(conversation, where));
    return {.ids = {all.begin(), all.end()}, .targets = {all.begin(), all.end()}};
  }
  std::string whole;
  for (const Message& message : conversation) whole += kind_->text(message);
  const std::vector<std::int32_t> ids = tokenizer_->encode_fragment(whole);
  Tokens tokens{.ids = {ids.begin(), ids.end()}, .targets = {ids.begin(), ids.end()}};
  std::size_t at = 0;
  const auto refuse = [&](std::size_t turn, const std::string& what, const std::string& fix = "") {
    throw UserError({where + ": message " + std::to_string(turn + 1) + " of a conversation " + what,
                     "its role is " + conversation[turn].role, fix});
  };
  for (std::size_t turn = 0; turn < conversation.size(); ++turn) {
    const Message& message = conversation[turn];
    const std::string role = chat::lower(message.role);
    const bool is_answer = role == "assistant";
    if (!is_answer && role != "system" && !is_question(role))
      refuse(turn, "has an unknown role", "use system, user, tool or assistant");
    if (is_answer && message.content.empty()) refuse(turn, "is an empty answer");
    if (is_answer && (turn == 0 || !is_question(chat::lower(conversation[turn - 1].role))))
      refuse(turn, "answers no question", "put a message of the user before each answer");
    const std::vector<std::int32_t> part = tokenizer_->encode_fragment(kind_->text(message));
    if (part.size() > ids.size() - at ||
        !std::equal(part.begin(), part.end(), ids.begin() + static_cast<std::ptrdiff_t>(at)))
      refuse(turn, "shares a token with its neighbors, so that its loss cannot be separated",
             "use a format whose messages begin and end with special tokens");
    const std::size_t ignored =
        is_answer ? std::min(kind_->assistant_prefix, part.size()) : part.size();
    std::fill_n(tokens.targets.begin() + static_cast<std::ptrdiff_t>(at), ignored, kIgnoredLabel);
    at += part.size();
  }
  if (at != ids.size())
    refuse(conversation.size() - 1, "has tokens that belong to no message",
           "use a format whose messages begin and end with special tokens");
  return tokens;
}

}  // namespace megatron
