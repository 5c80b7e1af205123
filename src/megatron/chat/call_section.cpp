#include "megatron/chat/call_section.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/json.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxNameLength = 256;

/// Returns the text of a JSON string; nullopt for other values.
std::optional<std::string> text_of(const std::string& value) {
  const Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? std::optional(json.get<std::string>()) : std::nullopt;
}

/// Returns the arguments that a member of a call gives: an object, or the text of one.
std::optional<std::string> arguments_of(const std::string& value) {
  if (value == "null") return "{}";
  const std::string text = text_of(value).value_or(value);
  JsonStream json;
  const bool is_object = text.starts_with('{') && json.read(text) == text.size() && json.is_done();
  return is_object ? std::optional(json.take()) : std::nullopt;
}

std::string unquoted(std::string text) {
  if (text.size() > 1 && text.front() == text.back() && (text[0] == '"' || text[0] == '\''))
    return text.substr(1, text.size() - 2);
  return text;
}

bool is_arguments(const std::string& key) { return key == "arguments" || key == "parameters"; }
bool is_name(const std::string& key) { return key == "name" || key == "tool_name"; }

}  // namespace

CallSection::CallSection(const ToolCallFormat& format, const ToolSchemas& tools,
                         OutputWriter& writer, std::string_view tag)
    : format_(format),
      tools_(tools),
      writer_(writer),
      is_bare_(tag.empty()),
      step_(format.body == CallBody::json || format.body == CallBody::python ? Step::list
                                                                             : Step::call_begin),
      at_(tag == format.begin ? tag.size() : 0) {}

CallSection::State CallSection::feed(std::string_view text) {
  text_ += text;
  for (;;) switch (step()) {
      case Next::again:
        break;
      case Next::wait:
        return State::more;
      case Next::done:
        return State::done;
      case Next::broken:
        if (has_begun_)
          writer_.add(OutputKind::call,
                      format_.body == CallBody::parameters ? "}" : json_->close());
        return State::broken;
    }
}

CallSection::State CallSection::finish() {
  const bool has_parameters = format_.body == CallBody::parameters;
  if (has_begun_ && !has_parameters) {
    writer_.add(OutputKind::call, std::string_view(text_).substr(safe_));
    safe_ = text_.size();
  }
  if (format_.body == CallBody::channels && !json_ && next_mark() == '\0') {
    begin_call();
    writer_.add(OutputKind::call, "{}");
    end_call();
  }
  const std::string left = trim(text_.substr(safe_));
  if (has_calls() && (format_.end.starts_with(left) || format_.call_end.starts_with(left))) {
    if (has_begun_ && has_parameters) writer_.add(OutputKind::call, "}");
    safe_ = text_.size();
  }
  return has_calls() ? State::done : State::broken;
}

char CallSection::next_mark() {
  at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
  return at_ < text_.size() ? text_[at_] : '\0';
}

CallSection::Next CallSection::take(std::string_view tag) {
  const std::string_view left = std::string_view(text_).substr(at_);
  if (left.starts_with(tag)) return at_ += tag.size(), Next::again;
  return tag.starts_with(left) ? Next::wait : Next::broken;
}

CallSection::Next CallSection::step() {
  switch (step_) {
    case Step::list:
      return read_list();
    case Step::key:
      return read_key();
    case Step::colon: {
      next_mark();
      const Next colon = take(":");
      return colon == Next::again ? go(Step::value) : colon;
    }
    case Step::value:
      return read_value();
    case Step::comma:
      return read_comma();
    case Step::call_begin:
      return read_call_begin();
    case Step::name:
      return read_name();
    case Step::arguments:
      return read_arguments();
    case Step::call_end: {
      next_mark();
      const Next end = take(format_.call_end);
      if (end == Next::again) safe_ = at_, step_ = Step::call_begin;
      return end;
    }
    case Step::parameter:
      return read_parameter();
    case Step::parameter_key:
    case Step::value_begin:
    case Step::parameter_value:
      return read_parameter_part();
  }
  return Next::broken;
}

CallSection::Next CallSection::read_list() {
  const char c = next_mark();
  const bool is_json = format_.body == CallBody::json;
  if (c == '\0') return Next::wait;
  if (is_json && c == '{') return ++at_, go(Step::key);
  if (c == '[' && !is_in_list_ && !has_calls()) return ++at_, is_in_list_ = true, Next::again;
  if (is_in_list_ && c == ']') {
    ++at_, is_in_list_ = false;
    if (has_calls()) safe_ = at_;
    return Next::again;
  }
  if (has_calls() && ((is_in_list_ && c == ',') || (is_json && !is_in_list_ && c == ';')))
    return ++at_, Next::again;
  const Next end = format_.end.empty() || !has_calls() ? Next::broken : take(format_.end);
  if (end == Next::again) return safe_ = at_, Next::done;
  if (end == Next::wait) return end;
  const bool may_be_name =
      is_json ? !has_calls() && !format_.name_end.empty() : is_in_list_ || !is_bare_;
  if (may_be_name) return go(Step::name);
  return has_calls() ? Next::done : Next::broken;
}

CallSection::Next CallSection::read_whole() {
  if (!json_) {
    if (next_mark() == '\0') return Next::wait;
    json_.emplace();
    value_.clear();
  }
  at_ += json_->read(std::string_view(text_).substr(at_));
  value_ += json_->take();
  if (json_->is_broken()) return Next::broken;
  if (!json_->is_done()) return Next::wait;
  json_.reset();
  return Next::again;
}

CallSection::Next CallSection::read_key() {
  const Next next = read_whole();
  if (next != Next::again) return next;
  key_ = unquoted(value_);
  if (key_ == value_ || (is_arguments(key_) && has_arguments_)) return Next::broken;
  return go(Step::colon);
}

CallSection::Next CallSection::read_value() {
  if (is_arguments(key_)) has_arguments_ = true;
  if (!json_ && is_arguments(key_) && !name_.empty() && next_mark() == '{')
    return go(Step::arguments);
  const Next next = read_whole();
  if (next != Next::again) return next;
  const std::optional<std::string> text = text_of(value_);
  if (is_name(key_)) {
    if (!name_.empty() || text.value_or("").empty() || (is_bare_ && !tools_.has(*text)))
      return Next::broken;
    name_ = *text;
  } else if (is_arguments(key_)) {
    const std::optional<std::string> arguments = arguments_of(value_);
    if (!arguments) return Next::broken;
    arguments_ = *arguments;
  } else if (key_ == "id") {
    id_ = text.value_or("");
  } else if (key_ != "tool_call_id" && !(key_ == "type" && text == "function")) {
    return Next::broken;
  }
  return go(Step::comma);
}

CallSection::Next CallSection::read_comma() {
  const char c = next_mark();
  if (c == '\0') return Next::wait;
  if (c == ',') return ++at_, go(Step::key);
  const bool is_written = has_arguments_ && arguments_.empty();
  if (c != '}' && !is_written) return Next::broken;  // a "}" that is missing is forgiven
  if (c == '}') ++at_;
  if (name_.empty()) return Next::broken;
  if (!is_written) {
    begin_call();
    writer_.add(OutputKind::call, has_arguments_ ? arguments_ : "{}");
  }
  return end_call(), go(Step::list);
}

CallSection::Next CallSection::read_call_begin() {
  if (next_mark() == '\0') return Next::wait;
  const Next begin = take(format_.call_begin);
  if (begin == Next::again) return go(Step::name);
  if (!has_calls()) return begin;
  const Next end = format_.end.empty() ? Next::broken : take(format_.end);
  if (end == Next::again) safe_ = at_;
  return begin == Next::wait || end == Next::wait ? Next::wait : Next::done;
}

CallSection::Next CallSection::read_name() {
  const std::string_view marks = format_.body == CallBody::json     ? "{"
                                 : format_.body == CallBody::python ? "("
                                 : format_.name_end.empty()         ? "<\n"
                                                                    : "";
  const std::size_t end =
      marks.empty() ? text_.find(format_.name_end, at_) : text_.find_first_of(marks, at_);
  if (end == std::string::npos)
    return text_.size() - at_ > kMaxNameLength ? Next::broken : Next::wait;
  name_ = trim(std::string_view(text_).substr(at_, end - at_));
  at_ = end + (marks.empty() ? format_.name_end.size() : 0);
  if (format_.body == CallBody::json) {  // NAME[CALL_ID]ID[ARGS]{…}
    if (name_.ends_with(format_.name_end)) name_.resize(name_.size() - format_.name_end.size());
    if (const std::size_t id = name_.find("[CALL_ID]"); id != std::string::npos)
      id_ = trim(name_.substr(id + 9)), name_.resize(id);
  }
  name_ = unquoted(name_);
  if (format_.names_are_ids) {
    id_ = name_;
    const std::size_t dot = name_.find('.'), colon = name_.rfind(':');
    if (colon != std::string::npos) name_.resize(colon);
    if (dot != std::string::npos && dot < name_.size()) name_.erase(0, dot + 1);
  }
  if (name_.empty() || name_.find_first_of(" <>{[(,=\"\n") != std::string::npos ||
      (is_bare_ && !tools_.has(name_)))
    return Next::broken;
  return go(format_.body == CallBody::parameters ? Step::parameter : Step::arguments);
}

CallSection::Next CallSection::read_arguments() {
  const bool is_python = format_.body == CallBody::python;
  if (!json_) {
    const char c = next_mark();
    if (c != (is_python ? '(' : '{')) return c == '\0' ? Next::wait : Next::broken;
    json_.emplace(is_python ? JsonStream::Syntax::python : JsonStream::Syntax::json);
  }
  at_ += json_->read(std::string_view(text_).substr(at_));
  arguments_ += json_->take();
  if (has_begun_ || arguments_.size() > 1) {  // so that a broken "{" begins no call
    begin_call();
    writer_.add(OutputKind::call, std::exchange(arguments_, {}));
    safe_ = at_ - json_->num_held();
  }
  if (json_->is_broken()) return Next::broken;
  if (!json_->is_done()) return Next::wait;
  json_.reset();
  has_begun_ = false;
  if (has_arguments_) return go(Step::comma);
  end_call();
  if (is_python) return go(Step::list);
  return format_.call_end.empty() ? Next::done : go(Step::call_end);
}

CallSection::Next CallSection::read_parameter() {
  if (next_mark() == '\0') return Next::wait;
  const Next end = take(format_.call_end);
  if (end == Next::again) {
    if (!has_begun_) begin_call(), writer_.add(OutputKind::call, "{");
    writer_.add(OutputKind::call, "}");
    end_call();
    return format_.end.empty() ? Next::done : go(Step::call_begin);
  }
  const Next begin = take(format_.key_begin);
  if (begin == Next::again) return go(Step::parameter_key);
  return end == Next::wait ? end : begin;
}

CallSection::Next CallSection::read_parameter_part() {
  if (step_ == Step::parameter_key) {
    const std::size_t end = text_.find(format_.key_end, at_);
    if (end == std::string::npos)
      return text_.size() - at_ > kMaxNameLength ? Next::broken : Next::wait;
    key_ = unquoted(trim(std::string_view(text_).substr(at_, end - at_)));
    at_ = end + format_.key_end.size();
    return keys_.insert(key_).second ? go(Step::value_begin) : Next::broken;
  }
  if (step_ == Step::value_begin) {
    if (!format_.value_begin.empty()) next_mark();
    const Next next = take(format_.value_begin);
    return next == Next::again ? go(Step::parameter_value) : next;
  }
  const std::size_t end = text_.find(format_.value_end, std::max(at_, scanned_));
  if (end == std::string::npos) {
    scanned_ = text_.size() - std::min(text_.size(), format_.value_end.size() - 1);
    return Next::wait;
  }
  value_ = text_.substr(at_, end - at_);
  at_ = end + format_.value_end.size();
  if (value_.starts_with('\n')) value_.erase(0, 1);
  if (value_.ends_with('\n')) value_.pop_back();
  std::string json = tools_.is_text(name_, key_) ? "" : json_of_literal(trim(value_));
  if (json.empty()) json = compact_json(Json(value_));
  const std::string_view before = has_begun_ ? ", " : "{";
  begin_call();
  writer_.add(OutputKind::call, std::string(before) + compact_json(Json(key_)) + ": " + json);
  safe_ = at_;
  return go(Step::parameter);
}

void CallSection::begin_call() {
  if (has_begun_) return;
  has_begun_ = true;
  ++num_calls_;
  writer_.begin_call(name_, id_);
}

void CallSection::end_call() {
  for (std::string* text : {&name_, &id_, &arguments_}) text->clear();
  keys_.clear();
  has_begun_ = has_arguments_ = false;
  safe_ = at_;
}

}  // namespace megatron
