// Automata over the bytes of UTF-8 texts. A rule is an automaton that others call, so rules may be
// recursive, as JSON is. They are built from left to right: each add function takes the state that
// the texts before lead to, and returns the one behind what it adds.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A set of characters, without surrogates.
class CodePoints {
 public:
  CodePoints() = default;
  static CodePoints all();
  /// Adds the characters from `first` to `last`.
  void add(char32_t first, char32_t last);
  void add(const CodePoints& other);
  /// Adds the other case of each ASCII letter.
  void fold_case();
  CodePoints complement() const;
  bool contains(char32_t c) const;

  struct Range {
    char32_t first, last;
  };
  /// Returns the ranges in order, with gaps between them.
  std::vector<Range> ranges() const;

 private:
  std::vector<Range> parts_;  ///< in any order
};

/// How characters are written: as they are, or in a JSON string. There a character stands for
/// itself where it may, and else as its short escape, or \u00xx.
enum class TextForm { plain, json_string };

/// Returns a text in a form, without quotes.
std::string written_text(std::string_view text, TextForm form);

class Automaton {
 public:
  using StateId = std::int32_t;
  using Bytes = std::bitset<256>;
  struct Edge {
    std::uint8_t first, last;  ///< bytes
    StateId to;
  };
  struct Call {
    std::int32_t rule;
    StateId to;  ///< where the text goes on behind that of the rule
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<StateId> skips;  ///< without a byte
    std::vector<Call> calls;
    bool is_end = false;  ///< of a rule
  };
  struct Rule {
    StateId begin, end;
  };

  /// UserError when there are too many.
  StateId add_state();
  void add_edge(StateId from, StateId to, std::uint8_t first, std::uint8_t last);
  void add_skip(StateId from, StateId to) { states_[index(from)].skips.push_back(to); }
  StateId add_literal(StateId at, std::string_view bytes);
  StateId add_characters(StateId at, const CodePoints& set, TextForm form);
  StateId add_call(StateId at, std::int32_t rule);
  /// Adds any number of repetitions of what `add` adds behind a state.
  template <class Add>
  StateId add_any_number(StateId at, const Add& add) {
    const StateId loop = add_state();
    add_skip(at, loop);
    add_skip(add(loop), loop);
    return loop;
  }

  /// Returns the number of a new rule, which is empty of texts until its end is reached.
  std::int32_t add_rule();
  const Rule& rule(std::int32_t number) const { return rules_[index(number)]; }
  const State& state(StateId id) const { return states_[index(id)]; }
  std::size_t num_states() const { return states_.size(); }

  /// Returns for each state whether the rest of a text of its rule can be written by these bytes.
  std::vector<bool> finishable(const Bytes& bytes) const;
  /// Drops what leads to states from which no text ends. UserError if a rule then calls itself
  /// before it has a byte.
  void trim();

 private:
  void check_recursion() const;
  static std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

  std::vector<State> states_;
  std::vector<Rule> rules_;
};

}  // namespace megatron
