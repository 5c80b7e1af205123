#include "megatron/chat/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "megatron/chat/call_section.h"

namespace megatron {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// Returns how many characters at the end of `text` may begin `tag`.
std::size_t partial(std::string_view text, std::string_view tag) {
  for (std::size_t size = std::min(text.size(), tag.size()); size > 0; --size)
    if (tag.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

}  // namespace

/// Formats with tags; OpenAI's channels are not divided yet.
class OutputParser::Machine {
 public:
  explicit Machine(const OutputParserOptions& options)
      : reasoning_(options.format.reasoning),
        tools_(options.tools),
        calls_(options.format.calls),
        writer_(options.id_seed, calls_ == nullptr ? 0 : calls_->id_length) {
    if (tools_.empty()) calls_ = nullptr;
    if (reasoning_ == nullptr) return;
    const std::string_view prompt = options.prompt;
    const std::size_t size = prompt.find_last_not_of(kSpace) + 1;
    reasons_ = prompt.substr(0, size).ends_with(reasoning_->begin) ||
               (reasoning_->begins_inside && !prompt.substr(0, size).ends_with(reasoning_->end));
  }

  OutputDelta feed(std::string_view piece, bool is_last) {
    pending_ += piece;
    while (advance(is_last)) {
    }
    if (is_last && writer_.count() == 0) writer_.delta.content += held_;
    return std::exchange(writer_.delta, {});
  }
  std::size_t num_calls() const { return writer_.count(); }

 private:
  /// Returns whether there may be more to do.
  bool advance(bool is_last) {
    if (section_) return read_section(is_last);
    if (pending_.empty()) return false;
    if (reasons_) return read_reasoning(is_last);
    return read_content(is_last);
  }

  bool read_reasoning(bool is_last) {
    const std::size_t found = pending_.find(reasoning_->end);
    const bool ends = found != std::string::npos;
    const std::size_t size =
        ends ? found : pending_.size() - (is_last ? 0 : partial(pending_, reasoning_->end));
    writer_.delta.reasoning += pending_.substr(0, size);
    pending_.erase(0, ends ? size + reasoning_->end.size() : size);
    if (ends) reasons_ = false, has_reasoned_ = skips_space_ = true;
    return ends;
  }

  bool read_content(bool is_last) {
    const std::size_t first = pending_.find_first_not_of(kSpace);
    if (is_at_begin_ && first != std::string::npos) {
      const std::string_view left = std::string_view(pending_).substr(first);
      if (reasoning_ != nullptr && !has_reasoned_) {
        if (left.starts_with(reasoning_->begin)) {
          pending_.erase(0, first + reasoning_->begin.size());
          return reasons_ = true;
        }
        if (!is_last && reasoning_->begin.starts_with(left)) return false;
      }
      if (calls_ != nullptr && calls_->begins_bare && (left[0] == '{' || left[0] == '['))
        return begin_section(first, true);
    }
    std::size_t found = pending_.size(), kept = 0;
    if (calls_ != nullptr)
      for (const std::string_view tag : {calls_->begin, calls_->other_begin}) {
        if (tag.empty()) continue;
        found = std::min(found, pending_.find(tag));
        kept = std::max(kept, partial(pending_, tag));
      }
    if (found < pending_.size()) return begin_section(found, false);
    const std::size_t size = pending_.size() - (is_last ? 0 : kept);
    add_content(std::string_view(pending_).substr(0, size));
    pending_.erase(0, size);
    return false;
  }

  bool begin_section(std::size_t at, bool is_bare) {
    add_content(std::string_view(pending_).substr(0, at));
    pending_.erase(0, at);
    is_at_begin_ = false;
    section_.emplace(*calls_, tools_, writer_, is_bare);
    return true;
  }

  bool read_section(bool is_last) {
    CallSection::State state = section_->feed(std::exchange(pending_, {}));
    if (state == CallSection::State::more && is_last) state = section_->finish();
    if (state == CallSection::State::more) return false;
    std::string rest = section_->rest();
    const bool has_calls = section_->has_calls();
    section_.reset();
    skips_space_ = skips_space_ || has_calls;
    if (state == CallSection::State::broken) {
      const std::size_t size = has_calls || rest.empty() ? 0 : 1;  // or it would begin again
      add_content(std::string_view(rest).substr(0, size));
      rest.erase(0, size);
    }
    pending_ = std::move(rest);
    return !pending_.empty();
  }

  void add_content(std::string_view text) {
    if (skips_space_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    skips_space_ = false;
    held_ += text;
    const std::size_t last = held_.find_last_not_of(kSpace);
    if (last == std::string::npos) return;
    is_at_begin_ = false;
    writer_.delta.content += held_.substr(0, last + 1);
    held_.erase(0, last + 1);
  }

  const ReasoningFormat* reasoning_;
  ToolSchemas tools_;
  const ToolCallFormat* calls_;
  CallWriter writer_;
  std::optional<CallSection> section_;
  std::string pending_, held_;  ///< held_: white space that may stand before a call
  bool reasons_ = false, has_reasoned_ = false, skips_space_ = false, is_at_begin_ = true;
};

OutputParser::OutputParser(const OutputParserOptions& options)
    : machine_(std::make_unique<Machine>(options)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;
OutputDelta OutputParser::feed(std::string_view piece) { return machine_->feed(piece, false); }
OutputDelta OutputParser::finish() { return machine_->feed({}, true); }
std::size_t OutputParser::num_calls() const { return machine_->num_calls(); }

}  // namespace megatron
