// The methods of Python's str, dict, list and tuple that templates may call. Those that
// change a value are refused, as Jinja's sandbox refuses them.
#pragma once

#include <optional>
#include <string>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// Returns the bound method `name` of the value; an undefined value for one that the sandbox
/// refuses; nullopt when the type has no such attribute.
std::optional<Value> method_of(const Value& value, const std::string& name);

/// Returns the undefined value that stands for an attribute that the sandbox refuses.
Value refused_attribute(const Value& value, const std::string& name);

/// Returns the meter of the rendering.
Meter& meter_of(Evaluator& evaluator);

}  // namespace megatron::chat
