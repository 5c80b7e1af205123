// OpenAI's harmony format: messages with a header, which names the channel and the tool, and a
// body. https://cookbook.openai.com/articles/openai-harmony
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "megatron/base/words.h"
#include "megatron/chat/call_section.h"
#include "megatron/chat/output_machine.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxHeaderLength = 512;
constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>",
                           kConstrain = "<|constrain|>", kMessage = "<|message|>", kEnd = "<|end|>",
                           kCall = "<|call|>", kReturn = "<|return|>";

/// Returns the length of the header that begins `text`, with its last tag; 0 if it may yet become
/// one, and nullopt if it is none.
std::optional<std::size_t> header_length(std::string_view text) {
  const std::string begin = trim(text.substr(0, kMaxHeaderLength));
  const auto is_begin = [&](std::string_view word) {
    return begin.starts_with(word) || word.starts_with(begin);
  };
  constexpr std::array<std::string_view, 6> kBegins = {kStart, kChannel,     kMessage,
                                                       "to=",  "commentary", "assistant"};
  const std::size_t end = text.substr(0, kMaxHeaderLength).find(kMessage);
  if (std::ranges::none_of(kBegins, is_begin)) return std::nullopt;
  if (end != std::string_view::npos) return end + kMessage.size();
  return text.size() < kMaxHeaderLength ? std::optional<std::size_t>(0) : std::nullopt;
}

struct ChannelHeader {
  std::string to, channel;
  bool is_known = true;  ///< no other words

  explicit ChannelHeader(std::string text) {
    for (const std::string_view tag : {kStart, kChannel, kConstrain, kMessage})
      for (std::size_t at; (at = text.find(tag)) != std::string::npos;)
        text.replace(at, tag.size(), " ");
    for (const std::string& word : split_words(text))
      if (word.starts_with("to="))
        to = word.substr(3);
      else if (word == "analysis" || word == "commentary" || word == "final")
        channel = word;
      else if (word != "assistant" && word != "json" && word != "code")
        is_known = false;
  }
};

class ChannelMachine final : public OutputParser::Machine {
 public:
  explicit ChannelMachine(const OutputParserOptions& options) : Machine(options) {
    // The text may go on with a header or a message that the prompt has begun.
    pending_ = options.prompt.substr(std::min(options.prompt.rfind(kStart), options.prompt.size()));
    const std::optional<std::size_t> length = header_length(pending_);
    const bool goes_on = length && pending_.find(kChannel) != std::string::npos &&
                         find_tag({kEnd, kCall, kReturn}, true).text.empty();
    if (goes_on && *length == 0)
      num_given_ = pending_.size();
    else if (goes_on)
      read_header(false);
    if (num_given_ == 0) pending_.clear();
    writer_.take();
  }

 private:
  bool advance(bool is_last) override {
    if (!in_body_) return !pending_.empty() && read_header(is_last);
    const auto [at, tag] = find_tag({kEnd, kCall, kReturn, kStart, kChannel}, is_last);
    const std::string body = pending_.substr(0, at);
    pending_.erase(0, at + (tag == kStart || tag == kChannel ? 0 : tag.size()));
    const bool ends = !tag.empty();
    if (call_)
      read_call(body, ends || is_last);
    else
      write(body);
    if (ends) in_body_ = false;
    return ends;
  }

  bool read_header(bool is_last) {
    const std::optional<std::size_t> length = header_length(pending_);
    if (length == 0 && !is_last) return false;
    const std::size_t given = std::exchange(num_given_, 0);
    in_body_ = true;
    follows_call_ = false;
    kind_ = OutputKind::content;
    if (!length || *length == 0) {
      const std::size_t size = std::max<std::size_t>(given, 1);  // or a header would begin again
      writer_.add(kind_, pending_.substr(given, size - given));
      pending_.erase(0, size);
      return true;
    }
    const std::string text = pending_.substr(given, *length - given);
    const ChannelHeader header(pending_.substr(0, *length));
    pending_.erase(0, *length);
    constexpr std::string_view kFunctions = "functions.";
    const bool is_function = header.to.starts_with(kFunctions);
    const std::string name = header.to.substr(is_function ? kFunctions.size() : 0);
    const bool is_call = calls_ != nullptr && !name.empty() && (is_function || tools_.has(name)),
               is_analysis = header.channel == "analysis";
    if (is_analysis && reasoning_ != nullptr) kind_ = OutputKind::reasoning;
    if (!header.is_known ||
        (!is_call && (!header.to.empty() || (is_analysis && reasoning_ == nullptr))))
      writer_.add(kind_, text);  // nobody reads it
    if (is_call) call_.emplace(*calls_, tools_, writer_, text, name);
    return true;
  }

  void read_call(const std::string& body, bool ends) {
    CallSection::State state = call_->feed(body);
    if (state == CallSection::State::more && ends) state = call_->finish();
    if (state == CallSection::State::more) return;
    kind_ = OutputKind::content;
    follows_call_ = call_->has_calls();
    write(call_->rest());
    call_.reset();
  }

  void write(std::string_view text) {
    if (follows_call_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (!text.empty()) follows_call_ = false;
    writer_.add(kind_, text);
  }

  bool in_body_ = false;  ///< of a message; else in its header
  bool follows_call_ = false;
  OutputKind kind_ = OutputKind::content;
  std::size_t num_given_ = 0;  ///< characters of pending_ that the prompt has
  std::optional<CallSection> call_;
};

}  // namespace

std::unique_ptr<OutputParser::Machine> make_channel_machine(const OutputParserOptions& options) {
  return std::make_unique<ChannelMachine>(options);
}

}  // namespace megatron
