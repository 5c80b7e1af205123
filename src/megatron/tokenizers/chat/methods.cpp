#include "megatron/tokenizers/chat/methods.h"

#include <span>

#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/chat/text_methods.h"

namespace megatron::chat {
namespace {

using Function = Value (*)(const Value& self, Arguments arguments, Meter& meter);

Value dict_get(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("get", std::move(arguments), {"key", "default"}, 1);
  require_hashable(bound.value(0));
  const Value* found = self.as_dict().find(bound.value(0), meter);
  return found != nullptr ? *found : bound.value(1);
}

Value dict_keys(const Value& self, Arguments, Meter& meter) {
  return Value::view(items_of(self, meter), "dict_keys");
}

Value dict_values(const Value& self, Arguments, Meter& meter) {
  Values values;
  for (const auto& [key, value] : self.as_dict().entries()) values.push_back(value);
  meter.charge(1 + values.size());
  return Value::view(std::move(values), "dict_values");
}

Value dict_items(const Value& self, Arguments, Meter& meter) {
  Values items = self.as_dict().pairs();
  meter.charge(1 + items.size());
  return Value::view(std::move(items), "dict_items");
}

Value copy(const Value& self, Arguments, Meter&) { return self; }

Value list_index(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("index", std::move(arguments), {"value"}, 1);
  const Values& items = self.items();
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equals(items[i], bound.value(0), meter)) return Value::integer(static_cast<int>(i));
  throw TemplateError(to_repr(bound.value(0), meter) + " is not in list");
}

Value list_count(const Value& self, Arguments arguments, Meter& meter) {
  const Bound bound("count", std::move(arguments), {"value"}, 1);
  std::int64_t count = 0;
  for (const Value& item : self.items()) count += equals(item, bound.value(0), meter) ? 1 : 0;
  return Value::integer(count);
}

struct Method {
  std::string_view name;
  Function function;  ///< null: the sandbox refuses it, because it changes the value
};

constexpr Method kDictMethods[] = {
    {"get", dict_get},   {"items", dict_items}, {"keys", dict_keys},     {"values", dict_values},
    {"copy", copy},      {"clear", nullptr},    {"pop", nullptr},        {"popitem", nullptr},
    {"update", nullptr}, {"fromkeys", nullptr}, {"setdefault", nullptr},
};
constexpr Method kListMethods[] = {
    {"index", list_index}, {"count", list_count}, {"copy", copy},      {"append", nullptr},
    {"clear", nullptr},    {"extend", nullptr},   {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr},   {"reverse", nullptr},  {"sort", nullptr},
};
constexpr Method kTupleMethods[] = {{"index", list_index}, {"count", list_count}};

std::span<const Method> methods_of(Kind kind) {
  switch (kind) {
    case Kind::dict:
      return kDictMethods;
    case Kind::list:
      return kListMethods;
    case Kind::tuple:
      return kTupleMethods;
    default:
      return {};
  }
}

/// A method with the value that it belongs to.
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, Function function) : self_(std::move(self)), function_(function) {
    depth = deeper(self_.depth());
  }
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Value call(Evaluator& evaluator, Arguments arguments) override {
    return function_(self_, std::move(arguments), meter_of(evaluator));
  }

 private:
  Value self_;
  Function function_;
};

}  // namespace

std::optional<Value> method_of(const Value& value, const std::string& name) {
  if (name.starts_with("_") && value.kind() != Kind::none)
    return name.starts_with("__") ? std::optional(refused_attribute(value, name)) : std::nullopt;
  Function function = nullptr;
  if (value.is_text()) {
    function = text_method(name);
    if (function == nullptr) return std::nullopt;
  } else {
    const auto methods = methods_of(value.kind());
    const auto found =
        std::find_if(methods.begin(), methods.end(), [&](auto& m) { return m.name == name; });
    if (found == methods.end()) return std::nullopt;
    if (found->function == nullptr) return refused_attribute(value, name);
    function = found->function;
  }
  return Value::object(std::make_shared<BoundMethod>(value, function));
}

Value refused_attribute(const Value& value, const std::string& name) {
  return Value::undefined("access to attribute '" + name + "' of '" + type_name(value) +
                          "' object is unsafe.");
}

}  // namespace megatron::chat
