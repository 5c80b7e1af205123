// Regular expressions: characters and classes ([a-z], \d \w \s of ASCII and their complements, and
// the dot, which is no end of a line), groups, alternatives, repetitions, ^ and $ at the ends, and
// (?i) at the beginning, which folds ASCII.
#pragma once

#include <string_view>

#include "megatron/grammar/automaton.h"

namespace megatron {

struct RegexOptions {
  TextForm form = TextForm::plain;  ///< of the texts that match
  bool searches = false;  ///< a text that has a match anywhere matches, unless ^ and $ say other
};

/// Adds the texts that match. UserError that names what is not supported and its position.
Automaton::StateId add_regex(Automaton& automaton, Automaton::StateId at, std::string_view pattern,
                             const RegexOptions& options = {});

}  // namespace megatron
