// Runs an automaton over bytes: a pushdown automaton, whose stack has the calls of rules that have
// not ended. What is reached is a set of pairs of a state and a stack. Equal sets have the same
// number, and a step from one by a byte is computed once.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/grammar/automaton.h"

namespace megatron {

class TextMatcher {
 public:
  using SetId = std::int32_t;
  static constexpr SetId kNone = -1;  ///< no text goes on so
  /// Stacks: of the rule that is the whole text, and of a rule of which it is not known who calls.
  static constexpr std::int32_t kWhole = 0, kUnknown = 1;

  /// A text is to be written by these bytes; see Set::is_live.
  TextMatcher(Automaton automaton, std::int32_t rule, const Automaton::Bytes& bytes);

  struct Place {
    Automaton::StateId state;
    std::int32_t stack;
    auto operator<=>(const Place&) const = default;
  };
  struct Set {
    std::vector<Place> places;         ///< sorted by stack; each has edges
    bool is_complete = false;          ///< the text may end here
    bool leaves = false;               ///< the rule of an unknown caller may end here
    bool is_live = false;              ///< the text is complete, or single bytes can complete it
    std::array<SetId, 256> next = {};  ///< kUnset: not computed yet
  };

  SetId begin() const { return begin_; }
  const Set& set(SetId id) const { return *sets_[static_cast<std::size_t>(id)]; }
  std::size_t num_sets() const { return sets_.size(); }
  SetId step(SetId from, std::uint8_t byte) {
    const SetId to = set(from).next[byte];
    return to == kUnset ? compute_step(from, byte) : to;
  }
  /// Returns kNone if no text goes on so.
  SetId step(SetId from, std::string_view bytes);
  /// Returns the set of states of one stack as if its caller were unknown.
  SetId with_unknown_caller(const std::vector<Automaton::StateId>& states);
  /// Returns what follows when the rule at the top of a stack, which has a caller, ends.
  SetId returned(std::int32_t stack);
  /// Returns whether single bytes can complete the rules of a stack.
  bool is_live_stack(std::int32_t stack) const {
    return frames_[static_cast<std::size_t>(stack)].is_live;
  }

 private:
  static constexpr SetId kUnset = -2;
  struct Frame {
    Automaton::StateId to;
    std::int32_t below;
    bool is_live;
  };

  SetId compute_step(SetId from, std::uint8_t byte);
  /// Returns the set of what is reached from places without a byte.
  SetId closed(std::vector<Place> places);
  SetId number_of(Set set);
  std::int32_t push(Automaton::StateId to, std::int32_t below);

  Automaton automaton_;
  std::vector<bool> is_finishable_;  ///< by single bytes
  std::vector<Frame> frames_;
  std::map<std::pair<Automaton::StateId, std::int32_t>, std::int32_t> numbers_of_frames_;
  std::vector<std::unique_ptr<Set>> sets_;
  using Key = std::pair<std::vector<Place>, int>;
  std::map<Key, SetId> numbers_of_sets_;
  SetId begin_;
};

}  // namespace megatron
