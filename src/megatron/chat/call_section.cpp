#include "megatron/chat/call_section.h"

#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

const chat::Value* member(const chat::Value* value, std::string_view key) {
  return value != nullptr && value->is(chat::Kind::dict) ? value->as_dict().find(key) : nullptr;
}

std::optional<Json> parsed(std::string_view text) {
  try {
    return parse_json(text, "arguments");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::string unquoted(std::string text) {
  if (text.size() > 1 && text.front() == text.back() && (text[0] == '"' || text[0] == '\''))
    return text.substr(1, text.size() - 2);
  return text;
}

}  // namespace

ToolSchemas::ToolSchemas(const chat::Value& tools) {
  if (!tools.is(chat::Kind::list)) return;
  for (const chat::Value& tool : tools.items()) {
    const chat::Value* function = member(&tool, "function");
    if (function == nullptr) function = &tool;
    const chat::Value* name = member(function, "name");
    if (name == nullptr || !name->is_text()) continue;
    auto& parameters = tools_[name->as_text()];
    const chat::Value* properties = member(member(function, "parameters"), "properties");
    if (properties == nullptr || !properties->is(chat::Kind::dict)) continue;
    for (const auto& [key, schema] : properties->as_dict().entries()) {
      const chat::Value* type = member(&schema, "type");
      if (key.is_text() && type != nullptr && type->is_text())
        parameters[key.as_text()] = type->as_text() == "string";
    }
  }
}

bool ToolSchemas::is_text(const std::string& tool, const std::string& parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return true;
  const auto type = found->second.find(parameter);
  return type == found->second.end() || type->second;
}

void CallWriter::begin(std::string name, std::string id) {
  if (id.empty()) {
    const std::string seed = id_seed_ + "#" + std::to_string(count_);
    const std::string digits = checksum_hex(checksum(seed)) + checksum_hex(checksum(seed + "#"));
    id = id_length_ > 0 ? digits.substr(0, id_length_) : "call_" + digits.substr(0, 24);
  }
  delta.calls.push_back({count_++, std::move(id), std::move(name), ""});
}

void CallWriter::add_arguments(std::string_view text) {
  if (text.empty()) return;
  if (delta.calls.empty() || delta.calls.back().index + 1 != count_)
    delta.calls.push_back({count_ - 1, "", "", ""});
  delta.calls.back().arguments += text;
}

std::size_t JsonExtent::read(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_done() || is_broken()) return i;
    if (state_ == State::text || (state_ == State::inside && in_text_)) {
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (c == '\\') {
        is_escaped_ = true;
      } else if (c == '"') {
        in_text_ = false;
        if (state_ == State::text) state_ = State::done;
      }
      continue;
    }
    if (state_ == State::scalar) {
      if (c == ',' || c == '}' || c == ']' || kSpace.find(c) != std::string_view::npos) {
        state_ = State::done;
        return i;
      }
      continue;
    }
    if (c == '{' || c == '[') {
      closers_ += c == '{' ? '}' : ']';
      state_ = State::inside;
    } else if (c == '"') {
      in_text_ = true;
      if (state_ == State::start) state_ = State::text;
    } else if (c == '}' || c == ']') {
      if (closers_.empty() || closers_.back() != c) {
        state_ = State::broken;
        return i;
      }
      closers_.pop_back();
      if (closers_.empty()) state_ = State::done;
    } else if (state_ == State::start) {
      state_ = State::scalar;
    }
  }
  return text.size();
}

CallSection::CallSection(const ToolCallFormat& format, const ToolSchemas& tools, CallWriter& calls,
                         bool is_bare)
    : format_(format), tools_(tools), calls_(calls), is_bare_(is_bare) {}

CallSection::State CallSection::feed(std::string_view text) {
  text_ += text;
  for (;;) switch (step()) {
      case Next::again:
        break;
      case Next::wait:
        return State::more;
      case Next::done:
        return safe_ = at_, State::done;
      case Next::broken:
        return close(), State::broken;
    }
}

CallSection::State CallSection::finish() {
  close();
  const std::string left = trim(text_.substr(safe_));
  const auto begins = [&](std::string_view tag) { return tag.starts_with(left); };
  if (num_calls_ > 0 && (begins(format_.end) || begins(format_.call_end) || left == "]"))
    safe_ = text_.size();
  return num_calls_ > 0 ? State::done : State::broken;
}

void CallSection::close() {
  if (has_begun_ && format_.body == CallBody::parameters) calls_.add_arguments("}");
  has_begun_ = false;
}

void CallSection::skip_space() {
  at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
}

CallSection::Next CallSection::take(std::string_view tag) {
  const std::string_view left = std::string_view(text_).substr(at_);
  if (left.starts_with(tag)) return at_ += tag.size(), Next::again;
  return tag.starts_with(left) ? Next::wait : Next::broken;
}

std::optional<std::string> CallSection::take_until(std::string_view tag) {
  const std::size_t found = text_.find(tag, at_);
  if (found == std::string::npos) return std::nullopt;
  std::string before = text_.substr(at_, found - at_);
  at_ = found + tag.size();
  return before;
}

CallSection::Next CallSection::step() {
  switch (step_) {
    case Step::section_begin: {
      if (!is_bare_ && !(!format_.other_begin.empty() && text_.starts_with(format_.other_begin)))
        at_ += format_.begin.size();
      step_ = format_.body == CallBody::json ? Step::list : Step::call_begin;
      return Next::again;
    }
    case Step::list:
      return read_list();
    case Step::key:
      return read_key();
    case Step::colon: {
      skip_space();
      const Next next = take(":");
      if (next == Next::again) step_ = Step::value, extent_ = {}, value_begin_ = 0;
      return next;
    }
    case Step::value:
      return read_value();
    case Step::call_begin:
      return read_call_begin();
    case Step::name:
      return read_name();
    case Step::arguments:
      return read_arguments();
    case Step::call_end:
      return read_call_end();
    case Step::argument:
      return read_argument();
  }
  return Next::broken;
}

CallSection::Next CallSection::read_list() {
  skip_space();
  if (is_at_end()) return Next::wait;
  const char c = text_[at_];
  if (c == '{') {
    name_.clear(), id_.clear(), late_arguments_.clear(), has_begun_ = false;
    return ++at_, step_ = Step::key, Next::again;
  }
  if (c == '[' && !is_in_list_ && num_calls_ == 0) return ++at_, is_in_list_ = true, Next::again;
  if (is_in_list_ && c == ',') return ++at_, Next::again;
  if (is_in_list_ && c == ']') return ++at_, is_in_list_ = false, safe_ = at_, Next::again;
  if (c == ';' && num_calls_ > 0) return ++at_, Next::again;
  if (num_calls_ == 0 && !format_.name_end.empty()) return step_ = Step::name, Next::again;
  if (num_calls_ == 0) return Next::broken;
  if (format_.end.empty()) return Next::done;
  const Next end = take(format_.end);
  return end == Next::wait ? end : Next::done;
}

CallSection::Next CallSection::read_key() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n,", at_), text_.size());
  if (is_at_end()) return Next::wait;
  if (text_[at_] == '}') return ++at_, end_object();
  JsonExtent extent;
  const std::size_t length = extent.read(std::string_view(text_).substr(at_));
  if (text_[at_] != '"') return Next::broken;
  if (!extent.is_done()) return Next::wait;
  key_ = text_.substr(at_ + 1, length - 2);
  return at_ += length, step_ = Step::colon, Next::again;
}

CallSection::Next CallSection::read_value() {
  if (value_begin_ == 0) {
    skip_space();
    if (is_at_end()) return Next::wait;
    value_begin_ = at_;
  }
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  const bool streams = is_arguments && text_[value_begin_] == '{' && !name_.empty();
  const std::size_t length = extent_.read(std::string_view(text_).substr(at_));
  if (streams) {
    begin_call();
    calls_.add_arguments(std::string_view(text_).substr(at_, length));
  }
  at_ += length;
  if (streams) safe_ = at_;
  if (extent_.is_broken()) return Next::broken;
  if (!extent_.is_done()) return Next::wait;
  step_ = Step::key;
  const std::string value = text_.substr(value_begin_, at_ - value_begin_);
  const bool is_name = key_ == "name" || key_ == "tool_name";
  if (!is_name && key_ != "id" && (!is_arguments || streams)) return Next::again;
  const std::optional<Json> json = parsed(value);
  const bool is_text = json && json->is_string();
  if (is_name) {
    if (!is_text) return Next::broken;
    name_ = json->get<std::string>();
    if (is_bare_ && !tools_.has(name_)) return Next::broken;
  } else if (key_ == "id") {
    if (is_text) id_ = json->get<std::string>();
  } else {
    late_arguments_ = is_text ? json->get<std::string>() : value;
  }
  return Next::again;
}

CallSection::Next CallSection::end_object() {
  if (name_.empty()) return Next::broken;
  if (!has_begun_) {
    begin_call();
    calls_.add_arguments(late_arguments_.empty() ? "{}" : late_arguments_);
  }
  return end_call(), step_ = Step::list, Next::again;
}

CallSection::Next CallSection::read_call_begin() {
  skip_space();
  if (is_at_end()) return Next::wait;
  const Next begin = take(format_.call_begin);
  if (begin == Next::again) return step_ = Step::name, begin;
  if (num_calls_ == 0) return begin;
  const Next end = format_.end.empty() ? Next::broken : take(format_.end);
  if (begin == Next::wait || end == Next::wait) return Next::wait;
  return Next::done;
}

CallSection::Next CallSection::read_name() {
  std::optional<std::string> name;
  if (format_.body == CallBody::json) {  // NAME[CALL_ID]ID[ARGS]{…}
    if (text_.find('{', at_) == std::string::npos) return Next::wait;
    name = take_until("{");
    --at_;
    if (name->ends_with(format_.name_end)) name->resize(name->size() - format_.name_end.size());
    if (const std::size_t id = name->find("[CALL_ID]"); id != std::string::npos)
      id_ = name->substr(id + 9), name->resize(id);
  } else if (!format_.name_end.empty()) {
    name = take_until(format_.name_end);
  } else {
    const std::size_t end = text_.find_first_of("<\n", at_);
    if (end != std::string::npos) name = text_.substr(at_, end - at_), at_ = end;
  }
  if (!name) return Next::wait;
  name_ = unquoted(trim(*name));
  if (format_.names_are_ids) {
    id_ = name_;
    const std::size_t dot = name_.find('.'), colon = name_.rfind(':');
    if (colon != std::string::npos) name_.resize(colon);
    if (dot != std::string::npos && dot < name_.size()) name_.erase(0, dot + 1);
  }
  if (name_.empty() || name_.find_first_of("<>{\n") != std::string::npos) return Next::broken;
  step_ = format_.body == CallBody::parameters ? Step::argument : Step::arguments;
  return extent_ = {}, Next::again;
}

CallSection::Next CallSection::read_arguments() {
  if (!has_begun_) {
    skip_space();
    if (is_at_end()) return Next::wait;
    if (text_[at_] != '{') return Next::broken;
    begin_call();
  }
  const std::size_t length = extent_.read(std::string_view(text_).substr(at_));
  calls_.add_arguments(std::string_view(text_).substr(at_, length));
  safe_ = at_ += length;
  if (extent_.is_broken()) return Next::broken;
  if (!extent_.is_done()) return Next::wait;
  end_call();
  if (format_.call_end.empty()) return Next::done;
  return step_ = Step::call_end, Next::again;
}

CallSection::Next CallSection::read_call_end() {
  skip_space();
  const Next end = take(format_.call_end);
  if (end == Next::again) safe_ = at_, step_ = Step::call_begin;
  return end;
}

CallSection::Next CallSection::read_argument() {
  skip_space();
  if (is_at_end()) return Next::wait;
  const Next end = take(format_.call_end);
  if (end == Next::again) {
    if (!has_begun_) begin_call(), calls_.add_arguments("{");
    calls_.add_arguments("}");
    end_call();
    return format_.end.empty() ? Next::done : (step_ = Step::call_begin, Next::again);
  }
  const std::size_t start = at_;
  const Next begin = take(format_.key_begin);
  if (begin != Next::again) return end == Next::wait ? end : begin;
  const auto wait = [&] { return at_ = start, Next::wait; };
  const std::optional<std::string> key = take_until(format_.key_end);
  if (!key) return wait();
  if (!format_.value_begin.empty()) {
    skip_space();
    const Next value = take(format_.value_begin);
    if (value != Next::again) return at_ = start, value;
  }
  std::optional<std::string> value = take_until(format_.value_end);
  if (!value) return wait();
  if (value->starts_with('\n')) value->erase(0, 1);
  if (value->ends_with('\n')) value->pop_back();
  const std::string name = unquoted(trim(*key));
  const std::optional<Json> json =
      tools_.is_text(name_, name) ? std::nullopt : parsed(trim(*value));
  if (!has_begun_) {
    begin_call();
    calls_.add_arguments("{");
  } else {
    calls_.add_arguments(", ");
  }
  calls_.add_arguments(compact_json(Json(name)) + ": " + compact_json(json ? *json : Json(*value)));
  return safe_ = at_, Next::again;
}

void CallSection::begin_call() {
  if (has_begun_) return;
  has_begun_ = true;
  ++num_calls_;
  calls_.begin(name_, id_);
}

void CallSection::end_call() { has_begun_ = false, safe_ = at_; }

}  // namespace megatron
