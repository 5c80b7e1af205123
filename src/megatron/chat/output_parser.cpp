#include "megatron/chat/output_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/chat/call_section.h"
#include "megatron/chat/output_machine.h"

namespace megatron {
namespace {

const chat::Value* member(const chat::Value* value, std::string_view key) {
  return value != nullptr && value->is(chat::Kind::dict) ? value->as_dict().find(key) : nullptr;
}

/// Formats whose parts stand between tags.
class TagMachine final : public OutputParser::Machine {
 public:
  explicit TagMachine(const OutputParserOptions& options) : Machine(options) {
    if (options.format.calls != nullptr) ignored_ = options.format.calls->ignored;
    reasons_ = repeats_begin_ =
        reasoning_ != nullptr &&
        begins_with_reasoning(*reasoning_, options.prompt, options.continues);
  }

 private:
  bool advance(bool is_last) override {
    const bool goes_on = section_           ? read_section(is_last)
                         : pending_.empty() ? false
                         : reasons_         ? read_reasoning(is_last)
                                            : read_content(is_last);
    if (!goes_on && is_last && num_calls() == 0)
      writer_.add(OutputKind::content, std::exchange(held_, {}));
    return goes_on;
  }

  bool read_reasoning(bool is_last) {
    if (repeats_begin_) {  // some models write the tag though the prompt has it
      const std::string_view left = std::string_view(pending_).substr(
          std::min(pending_.find_first_not_of(kSpace), pending_.size()));
      if (left.starts_with(reasoning_->begin))
        pending_.erase(0, pending_.size() - left.size() + reasoning_->begin.size());
      else if (!is_last && reasoning_->begin.starts_with(left))
        return false;
      repeats_begin_ = false;
    }
    const auto [at, tag] = find_tag({reasoning_->end}, is_last);
    writer_.add(OutputKind::reasoning, std::string_view(pending_).substr(0, at));
    pending_.erase(0, at + tag.size());
    if (tag.empty()) return false;
    reasons_ = false;
    return has_reasoned_ = skips_space_ = true;
  }

  bool read_content(bool is_last) {
    const std::size_t first = pending_.find_first_not_of(kSpace);
    if (is_at_begin_ && first != std::string::npos) {
      const std::string_view left = std::string_view(pending_).substr(first);
      if (reasoning_ != nullptr && !has_reasoned_) {
        if (left.starts_with(reasoning_->begin)) {
          pending_.erase(0, first + reasoning_->begin.size());
          held_.clear();
          return reasons_ = true;
        }
        if (!is_last && reasoning_->begin.starts_with(left)) return false;
      }
      const bool is_list = left[0] == '[';
      if (calls_ != nullptr && calls_->begins_bare &&
          (is_list || (left[0] == '{' && calls_->body == CallBody::json)))
        return begin_section(first, "");
    }
    const std::string_view begin = calls_ == nullptr ? "" : calls_->begin,
                           other_begin = calls_ == nullptr ? "" : calls_->other_begin;
    const auto [at, tag] = find_tag({begin, other_begin, ignored_[0], ignored_[1]}, is_last);
    if (!tag.empty() && (tag == begin || tag == other_begin)) return begin_section(at, tag);
    add_content(std::string_view(pending_).substr(0, at));
    pending_.erase(0, at + tag.size());
    return !tag.empty();
  }

  bool begin_section(std::size_t at, std::string_view tag) {
    add_content(std::string_view(pending_).substr(0, at));
    pending_.erase(0, at);
    is_at_begin_ = false;
    section_.emplace(*calls_, tools_, writer_, tag);
    return true;
  }

  bool read_section(bool is_last) {
    CallSection::State state = section_->feed(std::exchange(pending_, {}));
    if (state == CallSection::State::more && !is_last) return false;
    if (state == CallSection::State::more) {
      state = section_->finish();
      calls_ = nullptr;  // what is left stands within this section
    }
    std::string rest = section_->rest();
    const bool has_calls = section_->has_calls();
    section_.reset();
    skips_space_ = skips_space_ || has_calls;
    if (state == CallSection::State::broken && !has_calls && !rest.empty()) {
      add_content(std::string_view(rest).substr(0, 1));  // or it would begin again
      rest.erase(0, 1);
    }
    pending_ = std::move(rest);
    return !pending_.empty();
  }

  void add_content(std::string_view text) {
    if (skips_space_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    skips_space_ = false;
    const std::size_t end = text.find_last_not_of(kSpace) + 1;
    if (end > 0) {
      is_at_begin_ = false;
      writer_.add(OutputKind::content, std::exchange(held_, {}));
      writer_.add(OutputKind::content, text.substr(0, end));
    }
    held_ += text.substr(end);
  }

  std::array<std::string_view, 2> ignored_;
  std::optional<CallSection> section_;
  std::string held_;  ///< white space that may stand before a call
  bool reasons_ = false, repeats_begin_ = false, has_reasoned_ = false, skips_space_ = false,
       is_at_begin_ = true;
};

}  // namespace

bool begins_with_reasoning(const ReasoningFormat& format, std::string_view prompt, bool continues) {
  prompt = prompt.substr(0, prompt.find_last_not_of(kSpace) + 1);
  if (prompt.ends_with(format.begin)) return true;
  if (prompt.ends_with(format.end)) return false;
  if (!continues) return format.begins_inside;
  const std::size_t begin = prompt.rfind(format.begin), end = prompt.rfind(format.end);
  return begin != std::string_view::npos && (end == std::string_view::npos || end < begin);
}

OutputParser::Machine::Tag OutputParser::Machine::find_tag(
    std::initializer_list<std::string_view> tags, bool is_last) const {
  std::string first_characters;
  for (const std::string_view tag : tags) first_characters += tag.substr(0, 1);
  std::size_t at = 0;
  while ((at = pending_.find_first_of(first_characters, at)) != std::string::npos) {
    const std::string_view left = std::string_view(pending_).substr(at);
    for (const std::string_view tag : tags) {
      if (!tag.empty() && left.starts_with(tag)) return {at, tag};
      if (!is_last && tag.starts_with(left)) return {at, ""};
    }
    ++at;
  }
  return {pending_.size(), ""};
}

ToolSchemas::ToolSchemas(const chat::Value& tools) {
  if (!tools.is(chat::Kind::list)) return;
  for (const chat::Value& tool : tools.items()) {
    const chat::Value* function = member(&tool, "function");
    if (function == nullptr) function = &tool;
    const chat::Value* name = member(function, "name");
    if (name == nullptr || !name->is_text()) continue;
    names_.insert(name->as_text());
    const chat::Value* properties = member(member(function, "parameters"), "properties");
    if (properties == nullptr || !properties->is(chat::Kind::dict)) continue;
    for (const auto& [key, schema] : properties->as_dict().entries()) {
      const chat::Value* type = member(&schema, "type");
      const auto is_string = [](const chat::Value& one) {
        return one.is_text() && one.as_text() == "string";
      };
      if (key.is_text() && type != nullptr &&
          !(type->is(chat::Kind::list) ? std::ranges::any_of(type->items(), is_string)
                                       : is_string(*type)))
        values_.emplace(name->as_text(), key.as_text());
    }
  }
}

void OutputWriter::begin_call(std::string name, std::string id) {
  if (id.empty()) {
    const std::string seed = id_seed_ + "#" + std::to_string(num_calls_);
    const std::string digits = checksum_hex(checksum(seed)) + checksum_hex(checksum(seed + "#"));
    id = id_length_ > 0 ? digits.substr(0, id_length_) : "call_" + digits.substr(0, 24);
  }
  parts_.push_back({.kind = OutputKind::call,
                    .call = num_calls_++,
                    .id = std::move(id),
                    .name = std::move(name)});
}

void OutputWriter::add(OutputKind kind, std::string_view text) {
  if (text.empty()) return;
  const bool is_call = kind == OutputKind::call;
  if (parts_.empty() || parts_.back().kind != kind)
    parts_.push_back({.kind = kind, .call = is_call ? num_calls_ - 1 : 0});
  parts_.back().text += text;
}

OutputParser::OutputParser(const OutputParserOptions& options) {
  const auto [calls, reasoning] = options.format;
  const bool has_channels = (calls != nullptr && calls->body == CallBody::channels) ||
                            (reasoning != nullptr && reasoning->is_channel);
  if (has_channels)
    machine_ = make_channel_machine(options);
  else
    machine_ = std::make_unique<TagMachine>(options);
}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;
OutputDelta OutputParser::feed(std::string_view piece) { return machine_->feed(piece, false); }
OutputDelta OutputParser::finish() { return machine_->feed({}, true); }
std::size_t OutputParser::num_calls() const { return machine_->num_calls(); }

}  // namespace megatron
