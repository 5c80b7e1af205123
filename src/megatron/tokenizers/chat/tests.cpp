// Jinja's tests, such as `is defined`.

#include "megatron/tokenizers/chat/arguments.h"
#include "megatron/tokenizers/chat/builtins.h"
#include "megatron/tokenizers/chat/operators.h"

namespace megatron::chat {
namespace {

/// Returns the only argument of a test.
Value other(Arguments arguments) {
  return Bound("the test", std::move(arguments), {"other"}, 1).value(0);
}

template <bool (*holds)(const Value& input)>
bool plain(Evaluator&, const Value& input, Arguments arguments) {
  const Bound bound("the test", std::move(arguments), {});
  return holds(input);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::boolean); }
bool is_true_constant(const Value& v) { return v.is(Kind::boolean) && v.as_boolean(); }
bool is_false_constant(const Value& v) { return v.is(Kind::boolean) && !v.as_boolean(); }
bool is_integer(const Value& v) { return v.is(Kind::integer); }
bool is_real(const Value& v) { return v.is(Kind::real); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_text(); }
bool is_mapping(const Value& v) { return v.is(Kind::dict); }
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::object) && v.as_object().is_callable());
}
bool is_sequence(const Value& v) {
  return v.is_text() || v.is(Kind::list) || v.is(Kind::tuple) || v.is(Kind::dict) ||
         v.is_undefined() || (v.is(Kind::view) && v.view_name().starts_with("range"));
}
bool is_iterable(const Value& v) {
  return is_sequence(v) || v.is(Kind::view) || v.is(Kind::iterator);
}

bool leaves(Evaluator& evaluator, const Value& input, const Value& divisor, std::int64_t rest) {
  const Value found = arithmetic(Arithmetic::modulo, input, divisor, evaluator.meter());
  return equals(found, Value::integer(rest), evaluator.meter());
}
bool is_even(Evaluator& evaluator, const Value& input, Arguments) {
  return leaves(evaluator, input, Value::integer(2), 0);
}
bool is_odd(Evaluator& evaluator, const Value& input, Arguments) {
  return leaves(evaluator, input, Value::integer(2), 1);
}
bool is_divisible_by(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return leaves(evaluator, input, other(std::move(arguments)), 0);
}

bool is_equal(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return equals(input, other(std::move(arguments)), evaluator.meter());
}
bool is_unequal(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return !equals(input, other(std::move(arguments)), evaluator.meter());
}
bool is_less(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return compare(input, other(std::move(arguments)), "<", evaluator.meter()) < 0;
}
bool is_at_most(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return compare(input, other(std::move(arguments)), "<=", evaluator.meter()) <= 0;
}
bool is_greater(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return compare(input, other(std::move(arguments)), ">", evaluator.meter()) > 0;
}
bool is_at_least(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return compare(input, other(std::move(arguments)), ">=", evaluator.meter()) >= 0;
}
bool is_in(Evaluator& evaluator, const Value& input, Arguments arguments) {
  return contains(other(std::move(arguments)), input, evaluator.meter());
}
bool is_same_as(Evaluator&, const Value& input, Arguments arguments) {
  return input.is_same(other(std::move(arguments)));
}
struct TestEntry {
  std::string_view name;
  Test test;
};

constexpr TestEntry kTests[] = {
    {"!=", is_unequal},
    {"<", is_less},
    {"<=", is_at_most},
    {"==", is_equal},
    {">", is_greater},
    {">=", is_at_least},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", is_divisible_by},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"even", is_even},
    {"false", plain<is_false_constant>},
    {"float", plain<is_real>},
    {"ge", is_at_least},
    {"greaterthan", is_greater},
    {"gt", is_greater},
    {"in", is_in},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", is_at_most},
    {"lessthan", is_less},
    {"lt", is_less},
    {"mapping", plain<is_mapping>},
    {"ne", is_unequal},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", is_odd},
    {"sameas", is_same_as},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"true", plain<is_true_constant>},
    {"undefined", plain<is_undefined>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return entry.test;
  return nullptr;
}

}  // namespace megatron::chat
