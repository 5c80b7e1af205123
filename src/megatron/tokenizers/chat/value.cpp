#include "megatron/tokenizers/chat/value.h"

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat/operators.h"

namespace megatron::chat {
namespace {

constexpr int kDeepestValue = 200;

struct Text : Heap {
  std::string text;
  bool is_markup = false;
};

struct Sequence : Heap {
  Values items;
  std::string name;
  std::size_t next = 0;  ///< of an iterator
};

struct DictHolder : Heap {
  Dict dict;
};

}  // namespace

std::optional<Value> Object::attribute(std::string_view, Meter&) { return std::nullopt; }

Value Object::call(Evaluator&, Arguments) {
  throw TemplateError("'" + std::string(type_name()) + "' object is not callable");
}

int deeper(int depth) {
  if (depth >= kDeepestValue)
    throw TemplateError("values are nested deeper than " + std::to_string(kDeepestValue) +
                        " levels");
  return depth + 1;
}

int depth_around(const Values& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  return deeper(depth);
}

Value Value::undefined(std::string message) {
  auto heap = std::make_shared<Text>();
  heap->text = std::move(message);
  return {Kind::undefined, std::move(heap)};
}

Value Value::boolean(bool value) {
  Value result;
  result.kind_ = Kind::boolean;
  result.integer_ = value;
  return result;
}

Value Value::integer(std::int64_t value) {
  Value result;
  result.kind_ = Kind::integer;
  result.integer_ = value;
  return result;
}

Value Value::real(double value) {
  Value result;
  result.kind_ = Kind::real;
  result.real_ = value;
  return result;
}

Value Value::text(std::string value) {
  auto heap = std::make_shared<Text>();
  heap->text = std::move(value);
  return {Kind::text, std::move(heap)};
}

Value Value::markup(std::string value) {
  auto heap = std::make_shared<Text>();
  heap->text = std::move(value);
  heap->is_markup = true;
  return {Kind::text, std::move(heap)};
}

Value Value::sequence(Kind kind, Values items, std::string name) {
  auto heap = std::make_shared<Sequence>();
  heap->depth = depth_around(items);
  heap->items = std::move(items);
  heap->name = std::move(name);
  return {kind, std::move(heap)};
}

Value Value::list(Values items) { return sequence(Kind::list, std::move(items), {}); }
Value Value::tuple(Values items) { return sequence(Kind::tuple, std::move(items), {}); }
Value Value::view(Values items, std::string name) {
  return sequence(Kind::view, std::move(items), std::move(name));
}
Value Value::iterator(Values items, std::string type_name) {
  return sequence(Kind::iterator, std::move(items), std::move(type_name));
}

Value Value::dict(Dict entries) {
  auto heap = std::make_shared<DictHolder>();
  int depth = 0;
  for (const auto& [key, value] : entries.entries())
    depth = std::max({depth, key.depth(), value.depth()});
  heap->depth = deeper(depth);
  heap->dict = std::move(entries);
  return {Kind::dict, std::move(heap)};
}

Value Value::object(std::shared_ptr<Object> object) { return {Kind::object, std::move(object)}; }

const std::string& Value::undefined_message() const {
  MEGATRON_CHECK(is_undefined(), "value is defined");
  return static_cast<const Text&>(*heap_).text;
}

bool Value::is_markup() const { return is_text() && static_cast<const Text&>(*heap_).is_markup; }

const std::string& Value::as_text() const {
  MEGATRON_CHECK(is_text(), "value is no text");
  return static_cast<const Text&>(*heap_).text;
}

const Values& Value::items() const {
  MEGATRON_CHECK(is_sequence(), "value has no items");
  return static_cast<const Sequence&>(*heap_).items;
}

const std::string& Value::view_name() const {
  MEGATRON_CHECK(is(Kind::view) || is(Kind::iterator), "value is no view");
  return static_cast<const Sequence&>(*heap_).name;
}

std::optional<Value> Value::take_item() const {
  MEGATRON_CHECK(is(Kind::iterator), "value is no iterator");
  auto& sequence = static_cast<Sequence&>(*heap_);
  if (sequence.next == sequence.items.size()) return std::nullopt;
  return sequence.items[sequence.next++];
}

Values Value::take_items() const {
  Values items;
  while (auto item = take_item()) items.push_back(*std::move(item));
  return items;
}

const Dict& Value::as_dict() const {
  MEGATRON_CHECK(is(Kind::dict), "value is no dict");
  return static_cast<const DictHolder&>(*heap_).dict;
}

Object& Value::as_object() const {
  MEGATRON_CHECK(is(Kind::object), "value is no object");
  return static_cast<Object&>(*heap_);
}

std::shared_ptr<Object> Value::shared_object() const {
  return std::static_pointer_cast<Object>(heap_);
}

bool Value::is_same(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (heap_ || other.heap_) return heap_ == other.heap_;
  return is(Kind::real) ? real_ == other.real_ : integer_ == other.integer_;
}

void Dict::set(Value key, Value value, Meter& meter) {
  require_hashable(key);
  if (const Value* found = find(key, meter)) {
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  if (key.is_text()) texts_.emplace(key.as_text(), entries_.size());
  entries_.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  if (key.is_text()) return find(key.as_text());
  for (const auto& [known, value] : entries_)
    if (!known.is_text() && equals(known, key, meter)) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() <= 8) {
    for (const auto& [known, value] : entries_)
      if (known.is_text() && known.as_text() == key) return &value;
    return nullptr;
  }
  const auto found = texts_.find(std::string(key));
  return found == texts_.end() ? nullptr : &entries_[found->second].second;
}

Values Dict::pairs() const {
  Values pairs;
  for (const auto& [key, value] : entries_) pairs.push_back(Value::tuple({key, value}));
  return pairs;
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return value.is_markup() ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::view:
    case Kind::iterator:
      return value.view_name();
    case Kind::dict:
      return "dict";
    case Kind::object:
      return std::string(value.as_object().type_name());
  }
  return "";
}

void require_defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError(value.undefined_message());
}

}  // namespace megatron::chat
