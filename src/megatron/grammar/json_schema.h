// JSON schemas (draft 2020-12) as automata of texts that are valid. Of the texts of a value one
// normal form is produced:
//   - members of an object have the schema's order; optional ones may be left out. Then come the
//     members of patternProperties and additionalProperties, whose keys may repeat. Without
//     additionalProperties an object with `properties` or patternProperties has no others.
//   - between tokens of JSON there is no space, but one space may follow ',' and ':', and one
//     space, or a newline and up to 20 spaces, may stand at the inside of brackets and behind ','.
//   - integers have no point and no exponent, and exponents of numbers have at most two digits;
//     numbers with bounds have no exponent and at most 15 digits behind the point.
//   - strings under a pattern, format or length with another condition, keys of patterns, and
//     values of enum and const are written with as few escapes as possible; other strings in any
//     way.
//   - a schema without a type has the types that its keywords speak of.
// What cannot be guaranteed is refused, by a UserError that names the keyword and its place.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/grammar/automaton.h"

namespace megatron {

/// Adds the rule of a schema and returns its number. UserError when the text is no schema, or it is
/// not supported.
std::int32_t add_json_schema(Automaton& automaton, const std::string& schema);

}  // namespace megatron
