// The filters and tests of Jinja.
#pragma once

#include <string_view>

#include "megatron/tokenizers/chat/evaluator.h"

namespace megatron::chat {

using Filter = Value (*)(Evaluator& evaluator, const Value& input, Arguments arguments);
using Test = bool (*)(Evaluator& evaluator, const Value& input, Arguments arguments);

/// These functions return the filter or test called `name`, or null.
Filter text_filter(std::string_view name);
Filter sequence_filter(std::string_view name);
Filter selection_filter(std::string_view name);
Filter number_filter(std::string_view name);
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

/// One line of a table of filters.
struct FilterEntry {
  std::string_view name;
  Filter filter;
};
template <std::size_t size>
Filter find_in(const FilterEntry (&table)[size], std::string_view name) {
  for (const FilterEntry& entry : table)
    if (entry.name == name) return entry.filter;
  return nullptr;
}

/// Returns value.a.b for the attribute "a.b", as filters name attributes; numbers are indices.
Value nested_attribute(const Value& value, const Value& attribute, Meter& meter);

/// Returns the value as filters compare it: lower-case unless `case_sensitive`.
Value sort_key(const Value& value, bool case_sensitive);

}  // namespace megatron::chat
