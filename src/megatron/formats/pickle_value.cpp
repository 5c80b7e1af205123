#include <algorithm>
#include <cstdio>

#include "megatron/base/error.h"
#include "megatron/formats/pickle.h"

namespace megatron {
namespace {

/// In the order of PickleKind.
constexpr const char* kKindNames[] = {
    "None",      "a boolean",       "the integer", "an integer of more than 64 bits",
    "a number",  "bytes",           "the text",    "a list",
    "a tuple",   "a dict",          "a set",       "the name",
    "an object", "a persistent id",
};

}  // namespace

std::string quoted_text(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      char escape[5];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
      out += escape;
    }
  }
  return out + (text.size() > kLongest ? "…'" : "'");
}

bool PickleValue::has_node() const {
  return kind_ != PickleKind::none && kind_ != PickleKind::boolean &&
         kind_ != PickleKind::integer && kind_ != PickleKind::real;
}

std::string PickleValue::description() const {
  const std::string text = kKindNames[static_cast<std::size_t>(kind_)];
  if (is(PickleKind::integer)) return text + " " + std::to_string(integer_);
  if (is(PickleKind::text) || is(PickleKind::global)) return text + " " + quoted_text(node_->text);
  const std::string_view name = callable().global_name();
  return name.empty() ? text : text + " of " + quoted_text(name);
}

const PickleNode& PickleValue::require(bool is_right, std::string_view what,
                                       const char* expected) const {
  static const PickleNode none;
  if (!is_right) throw UserError({std::string(what) + " must be " + expected, description(), {}});
  return has_node() ? *node_ : none;
}

bool PickleValue::boolean(std::string_view what) const {
  require(is(PickleKind::boolean), what, "a boolean");
  return integer_ != 0;
}

std::int64_t PickleValue::integer(std::string_view what) const {
  require(is(PickleKind::integer), what, "an integer of 64 bits");
  return integer_;
}

double PickleValue::real(std::string_view what) const {
  if (is(PickleKind::integer)) return static_cast<double>(integer_);
  require(is(PickleKind::real), what, "a number");
  return real_;
}

const std::string& PickleValue::text(std::string_view what) const {
  return require(is(PickleKind::text), what, "a text").text;
}

const std::string& PickleValue::bytes(std::string_view what) const {
  const bool has_bytes =
      is(PickleKind::bytes) || is(PickleKind::text) || is(PickleKind::big_integer);
  return require(has_bytes, what, "bytes").text;
}

const std::vector<PickleValue>& PickleValue::items(std::string_view what) const {
  const bool has_items = is(PickleKind::list) || is(PickleKind::tuple) || is(PickleKind::set);
  return require(has_items, what, "a list").items;
}

std::vector<std::int64_t> PickleValue::integers(std::string_view what) const {
  std::vector<std::int64_t> numbers;
  for (const PickleValue& item : items(what)) numbers.push_back(item.integer(what));
  return numbers;
}

std::string_view PickleValue::global_name() const {
  return is(PickleKind::global) ? std::string_view(node_->text) : std::string_view();
}

bool PickleValue::is_object_of(std::string_view name) const {
  return is(PickleKind::object) && callable().global_name() == name;
}

PickleValue PickleValue::part(PickleNode::Part index) const {
  return is(PickleKind::object) ? node_->items[index] : PickleValue();
}

PickleValue PickleValue::persistent_id() const {
  return is(PickleKind::persistent_id) ? node_->items[0] : PickleValue();
}

PickleValue PickleValue::dict() const {
  if (is(PickleKind::dict)) return *this;
  for (const PickleNode::Part index : {PickleNode::entries, PickleNode::state})
    if (part(index).is(PickleKind::dict)) return part(index);
  return {};
}

std::vector<PickleEntry> PickleValue::entries(std::string_view what) const {
  const PickleValue from = dict();
  if (from.is(PickleKind::none)) require(false, what, "a dict");
  const std::vector<PickleValue>& items = from.node_->items;
  std::vector<PickleEntry> entries;
  entries.reserve(items.size() / 2);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) entries.push_back({items[i], items[i + 1]});
  return entries;
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  const PickleValue from = dict();
  if (from.is(PickleKind::none)) return std::nullopt;
  const std::vector<PickleValue>& items = from.node_->items;
  for (std::size_t i = items.size(); i >= 2; i -= 2)
    if (items[i - 2].is(PickleKind::text) && items[i - 2].node_->text == key) return items[i - 1];
  return std::nullopt;
}

PickleValue PickleValue::at(std::string_view key, std::string_view what) const {
  const std::optional<PickleValue> found = find(key);
  if (!found)
    throw UserError({std::string(what) + " has no '" + std::string(key) + "'", description(), {}});
  return *found;
}

}  // namespace megatron
