#include "megatron/chat/json_stream.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/format.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxLevels = 200;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

enum class Escape : std::uint8_t { more, whole, none };

/// Says what the text from a backslash on is: pairs of surrogates are one escape.
Escape escape_of(std::string_view text, bool is_python) {
  if (text.size() < 2) return Escape::more;
  const bool is_byte = is_python && text[1] == 'x';
  if (text[1] != 'u' && !is_byte) {
    const std::string_view known = is_python ? "\"\\bfnrt'" : "\"\\bfnrt/";
    return known.find(text[1]) == std::string_view::npos ? Escape::none : Escape::whole;
  }
  const std::size_t size = is_byte ? 4 : 6;
  const auto has = [&](std::size_t i, std::string_view those) {
    return text.size() > i && those.find(text[i]) != std::string_view::npos;
  };
  const bool is_surrogate = !is_byte && has(2, "dD") && has(3, "89abAB");
  if (!is_byte && has(2, "dD") && has(3, "cdefCDEF")) return Escape::none;
  for (std::size_t i = 2; i < text.size(); ++i) {
    const bool fits = i == 6   ? text[i] == '\\'
                      : i == 7 ? text[i] == 'u'
                      : i == 8 ? has(i, "dD")
                      : i == 9 ? has(i, "cdefCDEF")
                               : is_hex(text[i]);
    if (!fits) return Escape::none;
  }
  return text.size() < (is_surrogate ? 12 : size) ? Escape::more : Escape::whole;
}

}  // namespace

std::size_t JsonStream::read(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!step(text[i])) return i;
  return text.size();
}

std::string JsonStream::take() { return std::exchange(ready_, {}); }

std::string JsonStream::close() const {
  std::string closers(closers_.rbegin(), closers_.rend());
  for (char& closer : closers)
    if (closer == ')') closer = '}';
  return closers;
}

/// Returns whether `c` belongs to the value.
bool JsonStream::step(char c) {
  if (is_done() || is_broken()) return false;
  if (state_ == State::scalar) {
    if (is_word_char(c) || c == '+' || c == '-' || c == '.') return ++num_held_, scalar_ += c, true;
    if (!end_scalar() || is_done()) return false;
  }
  if (state_ == State::name && !is_word_char(c) && !end_key()) return false;
  ++num_held_;
  if (state_ == State::text)
    read_text(c);
  else if (state_ == State::name || is_blank(c))
    held_ += c;
  else if (!take_mark(c))
    state_ = State::broken;
  return !is_broken() || (--num_held_, false);
}

bool JsonStream::take_mark(char c) {
  const char end = closers_.empty() ? '\0' : closers_.back();
  const bool is_element = state_ == State::key || (state_ == State::value && end == ']');
  if (c == end && (is_element || state_ == State::comma)) {
    if (is_element) held_.clear();  // a comma before the end
    held_ += c == ')' ? '}' : c;
    closers_.pop_back();
    return end_value(), true;
  }
  if (state_ == State::colon || state_ == State::comma) {
    const bool is_colon = state_ == State::colon, has_names = end == ')';
    if (c != (!is_colon ? ',' : has_names ? '=' : ':')) return false;
    held_ += is_colon && has_names ? ": " : std::string(1, c);
    return state_ = is_colon || end == ']' ? State::value : State::key, true;
  }
  is_key_ = state_ == State::key;
  key_begin_ = held_.size();
  if (c == '{' || c == '[' || (c == '(' && is_python_ && closers_.empty())) {
    if (is_key_ || closers_.size() == kMaxLevels) return false;
    closers_ += c == '{' ? '}' : c == '[' ? ']' : ')';
    held_ += c == '[' ? '[' : '{';
    state_ = c == '[' ? State::value : State::key;
    return keep(), true;
  }
  if (is_key_ && end == ')' && is_word_char(c)) {
    held_.append("\"").push_back(c);
    return state_ = State::name, true;
  }
  if (!is_key_ && (is_word_char(c) || c == '-')) return scalar_ = c, state_ = State::scalar, true;
  if (c != '"' && !(is_python_ && c == '\'')) return false;
  quote_ = c;
  held_ += '"';
  if (!is_key_) keep();
  return state_ = State::text, true;
}

bool JsonStream::end_key() {
  const bool is_new = closers_.size() > 1 || keys_.insert(held_.substr(key_begin_)).second;
  held_ += '"';
  state_ = is_new ? State::colon : State::broken;
  return is_new;
}

bool JsonStream::end_scalar() {
  if (is_python_ && (scalar_ == "True" || scalar_ == "False" || scalar_ == "None"))
    scalar_ = scalar_ == "True" ? "true" : scalar_ == "None" ? "null" : "false";
  if (!Json::accept(scalar_)) return state_ = State::broken, false;
  held_ += std::exchange(scalar_, {});
  return end_value(), true;
}

void JsonStream::read_text(char c) {
  if (!escape_.empty() || c == '\\') {
    escape_ += c;
    const Escape escape = escape_of(escape_, is_python_);
    if (escape == Escape::more) return;
    const std::string text = std::exchange(escape_, {});
    if (escape == Escape::none) {
      held_ += "\\\\";
      for (const char next : text.substr(1)) read_text(next);
      return;
    }
    held_ += text[1] == '\'' ? "'" : text[1] == 'x' ? "\\u00" + text.substr(2) : text;
  } else if (c == quote_) {
    if (is_key_) return static_cast<void>(end_key());
    held_ += '"';
    return end_value();
  } else if (static_cast<unsigned char>(c) < 0x20) {
    held_ += format("\\u%04x", int{c});
  } else {
    if (c == '"') held_ += '\\';
    held_ += c;
  }
  if (!is_key_) keep();
}

void JsonStream::end_value() {
  keep();
  state_ = closers_.empty() ? State::done : State::comma;
}

void JsonStream::keep() {
  ready_ += std::exchange(held_, {});
  num_held_ = 0;
}

std::string json_of_literal(std::string_view text) {
  JsonStream value(JsonStream::Syntax::python);
  const bool is_whole = value.read(text) == text.size() && (value.read(" "), value.is_done());
  return is_whole && !text.starts_with('(') ? value.take() : "";
}

}  // namespace megatron
