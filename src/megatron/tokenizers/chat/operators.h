// Python's operators on the values of templates.
#pragma once

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

bool is_true(const Value& value);
/// Throws a TemplateError for values that cannot be keys of a dict.
void require_hashable(const Value& value);
bool equals(const Value& left, const Value& right, Meter& meter);
/// Returns a negative number, 0 or a positive number. Throws a TemplateError for values without an
/// order. `sign` is the operator's, for the message.
int compare(const Value& left, const Value& right, const char* sign, Meter& meter);
/// Returns whether `container` holds `item`.
bool contains(const Value& container, const Value& item, Meter& meter);

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };
Value arithmetic(Arithmetic operation, const Value& left, const Value& right, Meter& meter);
Value negative(const Value& value, bool is_minus);

/// Returns len(value), or nullopt for values without a length.
std::optional<std::int64_t> length_of(const Value& value);
/// Returns the items that a loop over `value` sees. Throws a TemplateError for values that cannot
/// be iterated.
Values items_of(const Value& value, Meter& meter);

/// Returns value.name, as Jinja finds it: attributes and methods before items.
Value get_attribute(const Value& value, const std::string& name, Meter& meter);
/// Returns value[key], as Jinja finds it: items before attributes and methods.
Value get_item(const Value& value, const Value& key, Meter& meter);
/// Returns value[first:last:step]; each of them may be None.
Value get_slice(const Value& value, const Value& first, const Value& last, const Value& step,
                Meter& meter);

}  // namespace megatron::chat
