// The values of chat templates: those of Python that Jinja shows to a template. Values are
// immutable except for namespaces, iterators and loops, and cheap to copy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat/template_error.h"

namespace megatron::chat {

class Value;
class Evaluator;
using Values = std::vector<Value>;

enum class Kind : std::uint8_t {
  undefined,  ///< Jinja's Undefined: empty text, false, no items; all other uses are errors
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  view,      ///< what range(), d.keys(), d.values() and d.items() return
  iterator,  ///< what filters such as map and select return; can be read once
  dict,
  object,  ///< namespaces, macros, functions, methods and loops
};

/// What a Value refers to. `depth` counts the levels of values within it, which bounds recursion.
struct Heap {
  int depth = 0;
  virtual ~Heap() = default;
};

/// Arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// A value with attributes or that can be called.
struct Object : Heap {
  /// Returns Python's name of the type.
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> attribute(std::string_view name, Meter& meter);
  virtual bool is_callable() const { return false; }
  /// Returns what a template prints of the object.
  virtual std::string print() { return "<" + std::string(type_name()) + ">"; }
  virtual Value call(Evaluator& evaluator, Arguments arguments);
};

class Dict;

class Value {
 public:
  Value() = default;  ///< None
  static Value undefined(std::string message);
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  static Value text(std::string value);
  static Value markup(std::string value);  ///< text that the filters safe and escape return
  static Value list(Values items);
  static Value tuple(Values items);
  /// A view whose printed form is `name`(…).
  static Value view(Values items, std::string name);
  static Value iterator(Values items, std::string type_name = "generator");
  static Value dict(Dict entries);
  static Value object(std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_text() const { return is(Kind::text); }
  bool is_sequence() const { return is(Kind::list) || is(Kind::tuple) || is(Kind::view); }
  bool is_integral() const { return is(Kind::integer) || is(Kind::boolean); }
  bool is_number() const { return is_integral() || is(Kind::real); }
  bool is_markup() const;

  /// These functions require the kind.
  bool as_boolean() const { return integer_ != 0; }
  std::int64_t as_integer() const { return integer_; }  ///< of booleans too
  double as_real() const { return is(Kind::real) ? real_ : static_cast<double>(integer_); }
  const std::string& as_text() const;
  const Values& items() const;           ///< of a list, tuple or view
  const std::string& view_name() const;  ///< of a view or iterator
  Values take_items() const;             ///< the items left of an iterator, which is empty then
  std::optional<Value> take_item() const;
  const Dict& as_dict() const;
  Object& as_object() const;
  std::shared_ptr<Object> shared_object() const;

  /// Returns whether both refer to the same value in memory, or are equal constants.
  bool is_same(const Value& other) const;
  int depth() const { return heap_ ? heap_->depth : 0; }
  /// Returns why the undefined value is undefined.
  const std::string& undefined_message() const;

 private:
  Value(Kind kind, std::shared_ptr<Heap> heap) : kind_(kind), heap_(std::move(heap)) {}
  static Value sequence(Kind kind, Values items, std::string name);

  Kind kind_ = Kind::none;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Heap> heap_;
};

/// A dict in the order of insertion.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  void set(Value key, Value value, Meter& meter);
  const Value* find(const Value& key, Meter& meter) const;
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns the entries as tuples, as d.items() does.
  Values pairs() const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> texts_;  ///< places of keys that are texts
};

/// Returns 1 + the depth of the deepest value. Throws a TemplateError beyond the deepest allowed.
int depth_around(const Values& values);
int deeper(int depth);

/// Returns Python's name of the value's type, such as "dict" or "NoneType".
std::string type_name(const Value& value);

/// Throws a TemplateError with the reason if the value is undefined.
void require_defined(const Value& value);

}  // namespace megatron::chat
