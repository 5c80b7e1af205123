// Deterministic automata, for what two conditions on one text allow.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megatron/grammar/automaton.h"

namespace megatron {

class Dfa {
 public:
  /// Takes the texts between two states, from which no rule is called. UserError when there are too
  /// many states.
  Dfa(const Automaton& automaton, Automaton::StateId begin, Automaton::StateId end);

  /// Returns the texts of both.
  Dfa intersected(const Dfa& other) const { return combined(other, true); }
  /// Returns the texts of this one that the other has not.
  Dfa without(const Dfa& other) const { return combined(other, false); }
  bool accepts(std::string_view text) const;
  Automaton::StateId add_to(Automaton& automaton, Automaton::StateId at) const;

 private:
  Dfa() = default;
  Dfa combined(const Dfa& other, bool keeps_texts_of_other) const;
  std::int32_t add_state(bool accepts);

  std::vector<std::array<std::int32_t, 256>> next_;  ///< −1: no text; the first state begins
  std::vector<bool> accepts_;
};

}  // namespace megatron
