#include "megatron/grammar/dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxDfaStates = 50'000;

/// Adds the states that no byte leads to, sorts them and drops those that are there twice.
void close_over_skips(const Automaton& automaton, std::vector<Automaton::StateId>& states) {
  std::ranges::sort(states);
  states.erase(std::unique(states.begin(), states.end()), states.end());
  std::vector<Automaton::StateId> left = states;
  while (!left.empty()) {
    const Automaton::StateId state = left.back();
    left.pop_back();
    for (const Automaton::StateId to : automaton.state(state).skips) {
      const auto place = std::ranges::lower_bound(states, to);
      if (place != states.end() && *place == to) continue;
      states.insert(place, to);
      left.push_back(to);
    }
  }
}

}  // namespace

std::int32_t Dfa::add_state(bool accepts) {
  if (next_.size() >= kMaxDfaStates)
    throw UserError({"the constraint of the output", "its conditions on one text are too large",
                     "use smaller counts of repetitions, or fewer conditions"});
  next_.emplace_back().fill(-1);
  accepts_.push_back(accepts);
  return static_cast<std::int32_t>(next_.size() - 1);
}

Dfa::Dfa(const Automaton& automaton, Automaton::StateId begin, Automaton::StateId end) {
  std::map<std::vector<Automaton::StateId>, std::int32_t> numbers;
  std::vector<std::vector<Automaton::StateId>> sets;
  const auto number_of = [&](std::vector<Automaton::StateId> set) {
    close_over_skips(automaton, set);
    const auto [place, is_new] = numbers.try_emplace(std::move(set), 0);
    if (is_new) {
      place->second = add_state(std::ranges::binary_search(place->first, end));
      sets.push_back(place->first);
    }
    return place->second;
  };
  number_of({begin});
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::array<std::vector<Automaton::StateId>, 256> targets;
    for (const Automaton::StateId state : sets[i])
      for (const Automaton::Edge& edge : automaton.state(state).edges)
        for (std::size_t byte = edge.first; byte <= edge.last; ++byte)
          targets[byte].push_back(edge.to);
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (targets[byte].empty()) continue;
      const bool is_as_before = byte > 0 && targets[byte] == targets[byte - 1];
      const std::int32_t to = is_as_before ? next_[i][byte - 1] : number_of(targets[byte]);
      next_[i][byte] = to;
    }
  }
}

Dfa Dfa::combined(const Dfa& other, bool keeps_texts_of_other) const {
  Dfa result;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> numbers;
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  const auto number_of = [&](std::int32_t own, std::int32_t others) {
    if (own < 0 || (others < 0 && keeps_texts_of_other)) return -1;
    const auto [place, is_new] = numbers.try_emplace({own, others}, 0);
    if (is_new) {
      const bool is_of_other = others >= 0 && other.accepts_[static_cast<std::size_t>(others)];
      place->second = result.add_state(accepts_[static_cast<std::size_t>(own)] &&
                                       is_of_other == keeps_texts_of_other);
      pairs.emplace_back(own, others);
    }
    return place->second;
  };
  number_of(0, 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [own, others] = pairs[i];
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::int32_t of_other =
          others < 0 ? -1 : other.next_[static_cast<std::size_t>(others)][byte];
      const std::int32_t to = number_of(next_[static_cast<std::size_t>(own)][byte], of_other);
      result.next_[i][byte] = to;
    }
  }
  return result;
}

bool Dfa::accepts(std::string_view text) const {
  std::int32_t state = 0;
  for (const char c : text) {
    state = next_[static_cast<std::size_t>(state)][static_cast<unsigned char>(c)];
    if (state < 0) return false;
  }
  return accepts_[static_cast<std::size_t>(state)];
}

Automaton::StateId Dfa::add_to(Automaton& automaton, Automaton::StateId at) const {
  std::vector<Automaton::StateId> states;
  for (std::size_t i = 0; i < next_.size(); ++i) states.push_back(automaton.add_state());
  const Automaton::StateId end = automaton.add_state();
  automaton.add_skip(at, states.front());
  for (std::size_t i = 0; i < next_.size(); ++i) {
    if (accepts_[i]) automaton.add_skip(states[i], end);
    for (std::size_t byte = 0; byte < 256;) {
      const std::int32_t to = next_[i][byte];
      const std::size_t first = byte;
      while (byte < 256 && next_[i][byte] == to) ++byte;
      if (to >= 0)
        automaton.add_edge(states[i], states[static_cast<std::size_t>(to)],
                           static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(byte - 1));
    }
  }
  return end;
}

}  // namespace megatron
