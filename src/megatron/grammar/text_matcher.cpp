#include "megatron/grammar/text_matcher.h"

#include <algorithm>
#include <set>

#include "megatron/base/error.h"

namespace megatron {

TextMatcher::TextMatcher(Automaton automaton, std::int32_t rule, const Automaton::Bytes& bytes)
    : automaton_(std::move(automaton)), frames_{{0, 0, true}, {0, 0, true}} {
  automaton_.trim();
  is_finishable_ = automaton_.finishable(bytes);
  begin_ = closed({{automaton_.rule(rule).begin, kWhole}});
}

TextMatcher::SetId TextMatcher::step(SetId from, std::string_view bytes) {
  for (const char byte : bytes) {
    if (from == kNone) break;
    from = step(from, static_cast<std::uint8_t>(byte));
  }
  return from;
}

std::int32_t TextMatcher::push(Automaton::StateId to, std::int32_t below) {
  const auto [place, is_new] = numbers_of_frames_.try_emplace({to, below}, 0);
  if (is_new) {
    place->second = static_cast<std::int32_t>(frames_.size());
    frames_.push_back(
        {to, below, is_finishable_[static_cast<std::size_t>(to)] && is_live_stack(below)});
  }
  return place->second;
}

TextMatcher::SetId TextMatcher::closed(std::vector<Place> places) {
  constexpr std::size_t kMostPlaces = 10'000;
  Set result;
  std::set<Place> seen;
  while (!places.empty()) {
    const Place place = places.back();
    places.pop_back();
    if (!seen.insert(place).second) continue;
    if (seen.size() > kMostPlaces)
      throw UserError({"the constraint of the output",
                       "a text can be read in more than " + std::to_string(kMostPlaces) + " ways",
                       "let its alternatives differ where they begin"});
    const auto& [state, stack] = place;
    const Automaton::State& from = automaton_.state(state);
    if (!from.edges.empty()) result.places.push_back(place);
    for (const Automaton::StateId to : from.skips) places.push_back({to, stack});
    for (const Automaton::Call& call : from.calls)
      places.push_back({automaton_.rule(call.rule).begin, push(call.to, stack)});
    if (!from.is_end) continue;
    if (stack == kWhole) {
      result.is_complete = true;
    } else if (stack == kUnknown) {
      result.leaves = true;
    } else {
      const Frame& frame = frames_[static_cast<std::size_t>(stack)];
      places.push_back({frame.to, frame.below});
    }
  }
  return number_of(std::move(result));
}

TextMatcher::SetId TextMatcher::number_of(Set set) {
  if (set.places.empty() && !set.is_complete && !set.leaves) return kNone;
  std::ranges::sort(set.places, {},
                    [](const Place& place) { return std::pair(place.stack, place.state); });
  const auto [place, is_new] = numbers_of_sets_.try_emplace(
      Key{set.places, (set.is_complete ? 1 : 0) + (set.leaves ? 2 : 0)}, 0);
  if (is_new) {
    place->second = static_cast<SetId>(sets_.size());
    set.is_live =
        set.is_complete || std::ranges::any_of(set.places, [this](const Place& one) {
          return is_finishable_[static_cast<std::size_t>(one.state)] && is_live_stack(one.stack);
        });
    set.next.fill(kUnset);
    sets_.push_back(std::make_unique<Set>(std::move(set)));
  }
  return place->second;
}

TextMatcher::SetId TextMatcher::compute_step(SetId from, std::uint8_t byte) {
  std::vector<Place> reached;
  for (const auto& [state, stack] : set(from).places)
    for (const Automaton::Edge& edge : automaton_.state(state).edges)
      if (edge.first <= byte && byte <= edge.last) reached.push_back({edge.to, stack});
  const SetId to = reached.empty() ? kNone : closed(std::move(reached));
  sets_[static_cast<std::size_t>(from)]->next[byte] = to;
  return to;
}

TextMatcher::SetId TextMatcher::with_unknown_caller(const std::vector<Automaton::StateId>& states) {
  Set result;
  for (const Automaton::StateId state : states) result.places.push_back({state, kUnknown});
  return number_of(std::move(result));
}

TextMatcher::SetId TextMatcher::returned(std::int32_t stack) {
  const Frame frame = frames_[static_cast<std::size_t>(stack)];
  return closed({{frame.to, frame.below}});
}

}  // namespace megatron
