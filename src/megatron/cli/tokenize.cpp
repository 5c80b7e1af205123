// Implements `megatron tokenize`: converts lines on stdin to JSON arrays of ids, and back.
#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/ordered_pool.h"
#include "megatron/cli/command.h"
#include "megatron/cli/line_reader.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/conversation_text.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/chat/json_values.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

struct TokenizeOptions {
  TokenizerConfig tokenizer;
  bool decode = false;
  bool keep_special_tokens = false;
  std::int64_t workers = 1;
  bool chat = false, chat_text = false, add_generation_prompt = false;
  std::string tools;
};

/// Renders JSON conversations as texts and ids, with the model's chat template or with the format
/// of MultimodalTokenizer.
class ConversationRenderer {
 public:
  explicit ConversationRenderer(const TokenizeOptions& options);

  /// Returns the text of a JSON list of messages, or of an object with "messages", whose other
  /// members are variables of the template. Throws a UserError.
  std::string render(std::string_view json) const;
  std::vector<std::int32_t> encode(std::string_view text) const { return encoder_->encode(text); }

 private:
  const ChatTemplate& chat_template(bool has_tools) const;

  const TokenizeOptions& options_;
  ChatFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatEncoder> encoder_;
  std::unique_ptr<const ConversationText> format_;  ///< that of --tokenizer-prompt-format
  ChatInput defaults_;
  mutable std::map<bool, ChatTemplate> templates_;  ///< without and with tools
};

void require_list(const chat::Value& value, const std::string& what) {
  if (!value.is(chat::Kind::list))
    throw UserError({what + " must be a list", chat::type_name(value), ""});
}

/// Sets what an object of a line gives instead of the defaults.
void read_members(const chat::Value& object, ChatInput& input) {
  for (const auto& [key, value] : object.as_dict().entries()) {
    const std::string& name = key.as_text();
    if (name == "messages") {
      input.messages = value;
    } else if (name == "tools") {
      input.tools = value;
    } else if (name == "documents") {
      input.documents = value;
    } else {
      input.variables.emplace_back(name, value);
    }
  }
  if (!input.tools.is_none()) require_list(input.tools, "\"tools\"");
}

std::string text_member(const chat::Value& message, const char* key) {
  const chat::Value* value = message.is(chat::Kind::dict) ? message.as_dict().find(key) : nullptr;
  if (value == nullptr || !value->is(chat::Kind::text))
    throw UserError({std::string("each message must be an object with the text \"") + key + "\"",
                     "", "--tokenizer-prompt-format knows no other contents"});
  return value->as_text();
}

Conversation conversation_of(const ChatInput& input) {
  if (!input.tools.is_none() || !input.documents.is_none() || !input.variables.empty())
    throw UserError({"--tokenizer-prompt-format reads only the messages of a line", "",
                     "leave its other members out"});
  Conversation conversation;
  for (const chat::Value& message : input.messages.items())
    conversation.push_back({text_member(message, "role"), text_member(message, "content")});
  return conversation;
}

ConversationRenderer::ConversationRenderer(const TokenizeOptions& options)
    : options_(options), files_(chat_files(options_.tokenizer)) {
  const bool has_format = !options_.tokenizer.tokenizer_prompt_format.empty();
  if (options_.chat || has_format) {
    tokenizer_ = make_tokenizer(options_.tokenizer);
    encoder_ = std::make_unique<ChatEncoder>(*tokenizer_);
  }
  if (has_format) {
    if (!options_.tokenizer.chat_template.empty() || !options_.tools.empty())
      throw UserError({"--chat-template and --tools do not go with --tokenizer-prompt-format", "",
                       "leave them out"});
    format_ = std::make_unique<const ConversationText>(/*sft_format=*/"", *tokenizer_, files_);
    return;
  }
  if (!options_.tools.empty()) {
    defaults_.tools = chat::read_json_value(read_file(options_.tools), options_.tools);
    require_list(defaults_.tools, options_.tools);
  }
  defaults_.add_generation_prompt = options_.add_generation_prompt;
  defaults_.variables = special_token_variables(files_.folder, tokenizer_.get());
  chat_template(!defaults_.tools.is_none());
}

const ChatTemplate& ConversationRenderer::chat_template(bool has_tools) const {
  auto found = templates_.find(has_tools);
  if (found == templates_.end())
    found = templates_.emplace(has_tools, open_chat_template(files_, has_tools)).first;
  return found->second;
}

std::string ConversationRenderer::render(std::string_view json) const {
  const auto replaced = replace_invalid_utf8(json);
  const chat::Value line = chat::read_json_value(replaced ? *replaced : json, "the conversation");
  ChatInput input = defaults_;
  if (line.is(chat::Kind::dict)) {
    read_members(line, input);
  } else {
    input.messages = line;
  }
  require_list(input.messages, "the messages of a conversation");
  if (input.messages.items().empty())
    throw UserError({"a conversation has no messages", "", "give at least one message"});
  if (format_)
    return format_->text(format_->prepare(conversation_of(input)), "the conversation",
                         options_.add_generation_prompt);
  return chat_template(!input.tools.is_none()).render(input);
}

const FieldTable<TokenizeOptions>& tokenize_table() {
  return field_table<TokenizeOptions>([](auto& t) {
    t.about(
        "Reads lines from stdin and prints the ids of each as a JSON array. With --decode, reads "
        "arrays and prints text. With --chat, each line is a conversation: a JSON list of "
        "messages, "
        "or an object of \"messages\", \"tools\" and other variables of the model's chat "
        "template.");
    t.include(&TokenizeOptions::tokenizer, tokenizer_table());
    t.group("Direction");
    t.field("decode", &TokenizeOptions::decode, "read JSON arrays of ids and print their text");
    t.field("keep_special_tokens", &TokenizeOptions::keep_special_tokens,
            "with --decode: print special tokens too");
    t.field("workers", &TokenizeOptions::workers,
            "number of threads that convert lines; the output is the same for any")
        .between(1, 1024);
    t.group("Conversations");
    t.field(
        "chat", &TokenizeOptions::chat,
        "read JSON conversations and print the ids that the model's chat template makes of them");
    t.field("chat_text", &TokenizeOptions::chat_text,
            "read JSON conversations and print the template's text as a JSON string");
    t.include(&TokenizeOptions::tokenizer, chat_template_table());
    t.field("tools", &TokenizeOptions::tools,
            "a JSON list of the tools that every conversation may call")
        .value_name("FILE");
    t.field("add_generation_prompt", &TokenizeOptions::add_generation_prompt,
            "end the text with the beginning of the assistant's answer");
  });
}

void append_json(std::string& out, std::span<const std::int32_t> ids) {
  constexpr std::size_t kMostDigits = 11;
  const std::size_t begin = out.size();
  out.resize(begin + ids.size() * (kMostDigits + 1) + 2);
  char* at = out.data() + begin;
  *at++ = '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) *at++ = ',';
    at = std::to_chars(at, at + kMostDigits, ids[i]).ptr;
  }
  *at++ = ']';
  out.resize(static_cast<std::size_t>(at - out.data()));
}

std::vector<std::int32_t> parse_ids(std::string_view line, std::size_t number,
                                    std::int64_t vocab_size) {
  const std::string source = "stdin, line " + std::to_string(number);
  const Json array = parse_json(line, source);
  if (!array.is_array())
    throw UserError({source + " must be a JSON array of ids", std::string(array.type_name()),
                     "write for example [15496, 995]"});
  std::vector<std::int32_t> ids;
  for (const Json& id : array) {
    if (!id.is_number_integer() || !(id >= 0 && id < vocab_size))
      throw UserError(
          {source + ": ids must be integers from 0 to " + std::to_string(vocab_size - 1), id.dump(),
           "give the ids of this tokenizer, or the tokenizer of these ids"});
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

/// Calls `convert` and adds the number of the line to its errors.
template <class Convert>
auto at_line(std::size_t number, const Convert& convert) {
  try {
    return convert();
  } catch (const UserError& error) {
    throw UserError({"stdin, line " + std::to_string(number) + ": " + error.parts().what,
                     error.parts().got, error.parts().fix});
  }
}

void check_options(const TokenizeOptions& options) {
  const bool chats = options.chat || options.chat_text;
  const auto refuse = [](const std::string& what, const std::string& fix) {
    throw UserError({what, "", fix});
  };
  if (options.chat && options.chat_text)
    refuse("--chat and --chat-text exclude each other", "give one of them");
  if (chats && (options.decode || options.keep_special_tokens))
    refuse("conversations are not read with --decode", "leave --decode out");
  if (options.keep_special_tokens && !options.decode)
    refuse("--keep-special-tokens is about the text of ids", "add --decode, or leave it out");
  if (chats && options.workers > 1)
    refuse("conversations are converted by one thread", "leave --workers out");
  if (chats) return;
  if (!options.tokenizer.chat_template.empty())
    refuse("--chat-template needs --chat or --chat-text", "add one of them");
  if (!options.tools.empty()) refuse("--tools needs --chat or --chat-text", "add one of them");
  if (options.add_generation_prompt)
    refuse("--add-generation-prompt needs --chat or --chat-text", "add one of them");
}

/// Lines of stdin, each ended by a newline.
struct Lines {
  std::string text;
  std::size_t first_number = 1;
  bool awaits_more = false;  ///< whether no other line is there yet
};

/// Reads the lines that are there, but not many more than kBytes.
std::optional<Lines> read_lines(LineReader& reader, std::size_t& number) {
  constexpr std::size_t kBytes = std::size_t{1} << 16;
  Lines lines{.text = {}, .first_number = number};
  std::string_view line;
  while (lines.text.size() < kBytes && reader.next(line)) {
    lines.text.append(line).append(1, '\n');
    ++number;
    lines.awaits_more = !reader.has_more();
    if (lines.awaits_more) break;
  }
  return lines.text.empty() ? std::nullopt : std::optional(std::move(lines));
}

/// The answers to some lines.
struct Answers {
  std::string text;
  std::exception_ptr error;  ///< what the line after them ended with
  bool flush = false;
};

/// Prints answer(line, number, out) to every line of stdin, in their order. `workers` threads call
/// it at once, or the caller's if that is one.
template <class Answer>
void answer_lines(std::int64_t workers, const Answer& answer) {
  LineReader reader;
  std::size_t number = 1;
  const auto answer_to = [&](const Lines& lines) {
    Answers answers{.text = {}, .error = nullptr, .flush = lines.awaits_more};
    std::string out;
    try {
      std::size_t line_number = lines.first_number;
      for (std::size_t at = 0; at < lines.text.size();) {
        const std::size_t end = lines.text.find('\n', at);
        out.clear();
        answer(std::string_view(lines.text).substr(at, end - at), line_number++, out);
        answers.text.append(out).append(1, '\n');
        at = end + 1;
      }
    } catch (...) {
      answers.error = std::current_exception();
    }
    return answers;
  };
  OrderedPool<Lines, Answers> pool(
      {.workers = workers == 1 ? 0 : workers,
       .depth = 4 * workers,
       .wake_source = [&] { reader.stop(); }},
      [&] { return read_lines(reader, number); }, answer_to);
  while (const std::optional<Answers> answers = pool.next()) {
    std::cout.write(answers->text.data(), static_cast<std::streamsize>(answers->text.size()));
    if (answers->error) std::rethrow_exception(answers->error);
    if (answers->flush) std::cout.flush();
    if (!std::cout) return;
  }
}

void answer_conversations(const TokenizeOptions& options) {
  const ConversationRenderer renderer(options);
  answer_lines(1, [&](std::string_view line, std::size_t number, std::string& out) {
    const std::string text = at_line(number, [&] { return renderer.render(line); });
    if (options.chat) {
      append_json(out, renderer.encode(text));
    } else {
      out += Json(text).dump();
    }
  });
}

}  // namespace

const FieldSet& tokenize_fields() { return tokenize_table().set(); }

int run_tokenize(std::span<const std::string> args) {
  TokenizeOptions options;
  std::cerr << notes_text(parse_command_line(tokenize_table(), args, options, "tokenize").notes);
  check_options(options);
  if (options.chat || options.chat_text) return answer_conversations(options), 0;
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const auto special = options.keep_special_tokens ? SpecialTokens::keep : SpecialTokens::skip;
  answer_lines(options.workers, [&](std::string_view line, std::size_t number, std::string& out) {
    if (options.decode) {
      out = tokenizer->decode(parse_ids(line, number, tokenizer->vocab_size()), special);
    } else {
      append_json(out, at_line(number, [&] { return tokenizer->encode(line); }));
    }
  });
  return 0;
}

}  // namespace megatron
