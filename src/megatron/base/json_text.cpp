#include "megatron/base/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

std::string quoted_text(std::string_view text) {
  const bool is_plain = std::ranges::all_of(
      text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  return is_plain ? '"' + std::string(text) + '"' : compact_json(Json(text));
}

}  // namespace

JsonText::JsonText(std::nullptr_t) {}
JsonText::JsonText(Kind kind, std::string scalar) : kind_(kind), scalar_(std::move(scalar)) {}
JsonText::JsonText(bool value) : JsonText(Kind::scalar, value ? "true" : "false") {}
// Not std::to_chars: nlohmann's digits are longer than the shortest for one double in 700.
JsonText::JsonText(double value) : JsonText(Kind::scalar, Json(value).dump()) {}
JsonText::JsonText(const char* text) : JsonText(std::string_view(text)) {}
JsonText::JsonText(const std::string& text) : JsonText(std::string_view(text)) {}
JsonText::JsonText(std::string_view text) : JsonText(Kind::scalar, quoted_text(text)) {}
JsonText::JsonText(std::initializer_list<Member> members) : kind_(Kind::object) {
  for (const Member& member : members) (*this)[member.key] = std::move(member.value);
}

JsonText::JsonText(const JsonText& other) = default;
JsonText::JsonText(JsonText&& other) noexcept = default;
JsonText& JsonText::operator=(const JsonText& other) = default;
JsonText& JsonText::operator=(JsonText&& other) noexcept = default;
JsonText::~JsonText() = default;

JsonText JsonText::array(std::initializer_list<JsonText> values) {
  JsonText array(Kind::array);
  for (const JsonText& value : values) array.push_back(value);
  return array;
}

JsonText JsonText::object() { return JsonText(Kind::object); }

/// Makes this value `kind` if it is null. Any other kind is a mistake of the caller.
void JsonText::require(Kind kind) {
  if (kind_ == Kind::null) kind_ = kind;
  MEGATRON_CHECK(kind_ == kind, "a JSON value of kind ", int(kind_), " is used as ", int(kind));
}

JsonText& JsonText::operator[](std::string_view key) {
  require(Kind::object);
  const auto found = std::ranges::find(members_, key, &Member::key);
  if (found != members_.end()) return found->value;
  members_.push_back({std::string(key), nullptr});
  return members_.back().value;
}

void JsonText::erase(std::string_view key) {
  require(Kind::object);
  std::erase_if(members_, [&](const Member& member) { return member.key == key; });
}

void JsonText::update(const JsonText& object) {
  MEGATRON_CHECK(object.kind_ == Kind::object, "update() with kind ", int(object.kind_));
  for (const Member& member : object.members_) (*this)[member.key] = member.value;
}

void JsonText::push_back(JsonText value) {
  require(Kind::array);
  members_.push_back({{}, std::move(value)});
}

std::string JsonText::dump(int indent) const {
  std::string out;
  append(out, indent, 0);
  return out;
}

void JsonText::append(std::string& out, int indent, int depth) const {
  const auto new_line = [&](int level) {
    if (indent >= 0)
      out.append(1, '\n').append(static_cast<std::size_t>(level) * static_cast<std::size_t>(indent),
                                 ' ');
  };
  const bool is_object = kind_ == Kind::object;
  if (kind_ == Kind::null || kind_ == Kind::scalar) {
    out += kind_ == Kind::null ? "null" : scalar_;
  } else if (members_.empty()) {
    out += is_object ? "{}" : "[]";
  } else {
    out += is_object ? '{' : '[';
    for (const Member& member : members_) {
      if (&member != members_.data()) out += ',';
      new_line(depth + 1);
      if (is_object) out.append(quoted_text(member.key)).append(indent >= 0 ? ": " : ":");
      member.value.append(out, indent, depth + 1);
    }
    new_line(depth);
    out += is_object ? '}' : ']';
  }
}

}  // namespace megatron
