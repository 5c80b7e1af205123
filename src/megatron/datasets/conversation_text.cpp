#include "megatron/datasets/conversation_text.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/chat/chat_template.h"
#include "megatron/tokenizers/chat/json_values.h"
#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/multimodal_tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

std::string stripped(std::string_view text) {
  return std::string(chat::strip(text, chat::Side::both));
}

std::string without(std::string_view text, std::string_view part) {
  return chat::replace_all(text, part, "", /*limit=*/-1);
}

std::string nemotron_h_aligned(const Message& message, const std::string&) {
  if (message.role == "system") return "<SPECIAL_10>System\n" + stripped(message.content) + "\n";
  if (message.role == "user")
    return "<SPECIAL_11>User\n" + stripped(message.content) + "\n<SPECIAL_11>Assistant\n";
  return message.role == "assistant" ? stripped(message.content) + "\n" : "";
}

/// Leaves out the switches of thinking in questions.
std::string nemotron_nano_v2(const Message& message, const std::string&) {
  if (message.role == "assistant")
    return "<SPECIAL_11>Assistant\n" + stripped(message.content) + "\n<SPECIAL_12>\n";
  const std::string text = stripped(without(without(message.content, "/think"), "/no_think"));
  if (message.role == "system") return "<SPECIAL_10>System\n" + text + "\n";
  return message.role == "user" ? "<SPECIAL_11>User\n" + text + "\n" : "";
}

std::string identity(const Message& message, const std::string&) { return message.content; }

std::string mistral(const Message& message, const std::string& eos) {
  if (message.role == "user") return "[INST] " + message.content + "[/INST]";
  return message.role == "assistant" ? " " + message.content + eos : "";
}

std::string llama3(const Message& message, const std::string&) {
  return "<|start_header_id|>" + message.role + "<|end_header_id|>\n\n" +
         stripped(message.content) + "<|eot_id|>";
}

std::string chatml(const Message& message, const std::string&) {
  return "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
}

std::string nemotron5(const Message& message, const std::string&) {
  return "<SPECIAL_14>" + message.role + "\n" + message.content + "<SPECIAL_15>\n";
}

std::string nemotron5_aligned(const Message& message, const std::string&) {
  return message.role + "\n" + message.content + "\n[PREFIX]";
}

constexpr const char* kChatmlAnswer = "<|im_start|>assistant\n";
constexpr const char* kLlama3Answer = "<|start_header_id|>assistant<|end_header_id|>\n\n";
constexpr const char* kQwenSystem =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

constexpr std::array kSftKinds = {
    PromptKind{
        .name = "nemotron-h-aligned", .message = nemotron_h_aligned, .pad_token = "<SPECIAL_233>"},
    PromptKind{.name = "nemotron-nano-v2",
               .message = nemotron_nano_v2,
               .assistant_prefix = 3,
               .pad_token = "<unk>"},
    PromptKind{.name = "identity", .message = identity, .pad_token = "<unk>"},
    PromptKind{.name = "default", .trains_on_everything = true}};

constexpr PromptKind llama3_kind(const char* name) {
  return {.name = name,
          .message = llama3,
          .answer_begin = kLlama3Answer,
          .assistant_prefix = 4,
          .begins_with_bos = true};
}

constexpr PromptKind qwen_kind(const char* name) {
  return {.name = name,
          .message = chatml,
          .answer_begin = kChatmlAnswer,
          .assistant_prefix = 3,
          .system_message = kQwenSystem};
}

constexpr std::array kMultimodalKinds = {
    PromptKind{.name = "mistral",
               .message = mistral,
               .answer_begin = " ",
               .begins_with_bos = true,
               .has_system_role = false},
    PromptKind{.name = "llama3", .assistant_prefix = 4, .begins_with_bos = true},
    llama3_kind("llama3p1"),
    llama3_kind("llama3p2"),
    PromptKind{.name = "nvlm-yi-34b",
               .message = chatml,
               .answer_begin = kChatmlAnswer,
               .assistant_prefix = 4,
               .begins_with_bos = true},
    PromptKind{.name = "chatml", .assistant_prefix = 3},
    qwen_kind("qwen2p0"),
    qwen_kind("qwen2p5"),
    PromptKind{.name = "nemotron5",
               .message = nemotron5,
               .answer_begin = "<SPECIAL_14>assistant\n",
               .assistant_prefix = 3,
               .begins_with_bos = true},
    PromptKind{.name = "nemotron5-aligned",
               .message = nemotron5_aligned,
               .answer_begin = "Assistant\n",
               .assistant_prefix = 2,
               .begins_with_bos = true,
               .capitalizes_roles = true},
    PromptKind{.name = "nemotron6-moe", .assistant_prefix = std::nullopt}};

template <class Kinds>
const PromptKind& find_kind(const Kinds& kinds, const std::string& name, const std::string& flag) {
  const auto found = std::ranges::find(kinds, name, &PromptKind::name);
  if (found != kinds.end()) return *found;
  throw UserError(
      {flag + " does not exist", "", "use one of " + joined_text(kinds, ", ", &PromptKind::name)});
}

std::string variable(const std::vector<std::pair<std::string, chat::Value>>& variables,
                     std::string_view name) {
  for (const auto& [key, value] : variables)
    if (key == name) return value.as_text();
  return "";
}

}  // namespace

/// A chat template. Its dates are those of the start of the run.
struct ConversationText::Template {
  ChatTemplate chat;
  std::vector<std::pair<std::string, chat::Value>> variables;
  std::time_t start = std::time(nullptr);

  std::string text(const Conversation& conversation, const std::string& where, bool asks) const {
    JsonText messages = JsonText::array();
    for (const Message& message : conversation)
      messages.push_back({{"role", message.role}, {"content", message.content}});
    return chat.render({.messages = chat::read_json_value(messages.dump(), where),
                        .add_generation_prompt = asks,
                        .variables = variables},
                       start);
  }
};

ConversationText::~ConversationText() = default;

ConversationText::ConversationText(const std::string& sft_format, const Tokenizer& tokenizer,
                                   const ChatFiles& files) {
  const MultimodalPrompt* own = tokenizer.multimodal_prompt();
  is_multimodal_ = own != nullptr;
  if (own != nullptr) {
    if (own->format.empty())
      throw UserError({"MultimodalTokenizer needs a format for conversations", "",
                       "add --tokenizer-prompt-format"});
    flag_ = "--tokenizer-prompt-format " + own->format;
    kind_ = &find_kind(kMultimodalKinds, own->format, flag_);
    image_tag_type_ = own->image_tag_type;
    force_system_message_ = own->force_system_message && kind_->system_message != nullptr;
    description_ = own->format + " tags " + image_tag_type_ +
                   (force_system_message_ ? " forced system message" : "");
  } else {
    flag_ = "--sft-tokenizer-prompt-format " + sft_format;
    kind_ = &find_kind(kSftKinds, sft_format, flag_);
    description_ = sft_format;
  }
  auto variables = special_token_variables(files.folder, &tokenizer);
  if (kind_->begins_with_bos) bos_ = variable(variables, "bos_token");
  eos_ = variable(variables, "eos_token");
  if (kind_->begins_with_bos && tokenizer.find(bos_) < 0)
    throw UserError({flag_ + " begins conversations with the bos_token",
                     bos_.empty() ? "the tokenizer has none" : "the tokenizer has no " + bos_,
                     "name one in its tokenizer_config.json"});
  if (kind_->message != nullptr) {
    if (files.choice.empty()) return;
    throw UserError(
        {"--chat-template has no effect with " + flag_, "",
         is_multimodal_ ? "leave it out" : "add --sft-tokenizer-prompt-format default"});
  }
  if (!files.has_template() && find_chat_templates(files.folder).empty())
    throw UserError({flag_ + " is the tokenizer's chat template",
                     files.folder.string() + " has none",
                     std::string("put chat_template.jinja beside the tokenizer's file") +
                         (is_multimodal_ ? "" : ", or give one with --chat-template")});
  const ChatTemplateSource found = find_chat_template(files, /*has_tools=*/false);
  description_ += " " + checksum_hex(checksum(found.text));
  template_ = std::make_unique<const Template>(
      Template{.chat = ChatTemplate(found.text, found.source), .variables = std::move(variables)});
}

Conversation ConversationText::prepare(Conversation conversation) const {
  const bool has_system = !conversation.empty() && conversation[0].role == "system";
  if (has_system && (!kind_->has_system_role || force_system_message_))
    conversation.erase(conversation.begin());
  if (force_system_message_)
    conversation.insert(conversation.begin(), {"system", kind_->system_message});
  const ImageTags tags = image_tags(image_tag_type_);
  for (auto& [role, content] : conversation) {
    if (kind_->capitalizes_roles && !role.empty()) {
      std::size_t first = 0;
      next_code_point(role, first);
      role = chat::upper(role.substr(0, first)) + role.substr(first);
    }
    if (!image_tag_type_.empty()) content = tags.add_to(content);
  }
  return conversation;
}

std::string ConversationText::text(const Conversation& prepared, const std::string& where,
                                   bool asks) const {
  if (template_) return template_->text(prepared, where, asks);
  std::string text = bos_;
  for (const Message& message : prepared) text += kind_->message(message, eos_);
  return asks ? text + kind_->answer_begin : text;
}

}  // namespace megatron
