#include "megatron/grammar/automaton.h"

#include <algorithm>
#include <map>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
constexpr std::size_t kMaxStates = 1'000'000;

using ByteRanges = std::vector<std::pair<std::uint8_t, std::uint8_t>>;

/// Calls found(ranges) for sequences of byte ranges that together are the UTF-8 of the characters
/// from `first` to `last`: the ranges are cut until each byte varies by itself.
template <class Found>
void split_utf8(char32_t first, char32_t last, const Found& found) {
  const auto split = [&](char32_t end_of_first) {
    split_utf8(first, end_of_first, found);
    split_utf8(end_of_first + 1, last, found);
  };
  for (const char32_t longest : {0x7Fu, 0x7FFu, 0xFFFFu})
    if (first <= longest && longest < last) return split(longest);
  if (last > 0x7F) {
    for (const unsigned bits : {6u, 12u, 18u}) {
      const char32_t low = (1u << bits) - 1;
      if ((first & ~low) == (last & ~low)) continue;
      if ((first & low) != 0) return split(first | low);
      if ((last & low) != low) return split((last & ~low) - 1);
    }
  }
  std::string begin, end;
  append_utf8(begin, first);
  append_utf8(end, last);
  ByteRanges ranges;
  for (std::size_t i = 0; i < begin.size(); ++i)
    ranges.emplace_back(static_cast<std::uint8_t>(begin[i]), static_cast<std::uint8_t>(end[i]));
  found(ranges);
}

/// Returns the escape of a character that cannot stand for itself in a JSON string; else "".
std::string json_escape(char32_t c) {
  constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";
  for (std::size_t i = 0; i < kShort.size(); i += 2)
    if (c == static_cast<unsigned char>(kShort[i])) return {'\\', kShort[i + 1]};
  if (c >= 0x20) return "";
  constexpr std::string_view kDigits = "0123456789abcdef";
  return std::string("\\u00") + kDigits[c >> 4] + kDigits[c & 15];
}

}  // namespace

CodePoints CodePoints::all() { return CodePoints().complement(); }

void CodePoints::add(char32_t first, char32_t last) {
  if (first < kFirstSurrogate)
    parts_.push_back({first, std::min<char32_t>(last, kFirstSurrogate - 1)});
  if (last > kLastSurrogate)
    parts_.push_back({std::max<char32_t>(first, kLastSurrogate + 1), last});
}

void CodePoints::add(const CodePoints& other) {
  parts_.insert(parts_.end(), other.parts_.begin(), other.parts_.end());
}

void CodePoints::fold_case() {
  for (char32_t c = 'a'; c <= 'z'; ++c) {
    const char32_t upper = c - 'a' + 'A';
    if (contains(c) != contains(upper)) parts_.insert(parts_.end(), {{c, c}, {upper, upper}});
  }
}

bool CodePoints::contains(char32_t c) const {
  return std::ranges::any_of(parts_,
                             [c](const Range& part) { return part.first <= c && c <= part.last; });
}

std::vector<CodePoints::Range> CodePoints::ranges() const {
  std::vector<Range> sorted = parts_, united;
  std::ranges::sort(sorted, {}, &Range::first);
  for (const Range& part : sorted) {
    if (!united.empty() && part.first <= united.back().last + 1)
      united.back().last = std::max(united.back().last, part.last);
    else
      united.push_back(part);
  }
  return united;
}

CodePoints CodePoints::complement() const {
  CodePoints rest;
  char32_t next = 0;
  for (const Range& range : ranges()) {
    if (range.first > next) rest.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.add(next, kLastCodePoint);
  return rest;
}

std::string written_text(std::string_view text, TextForm form) {
  if (form == TextForm::plain) return std::string(text);
  std::string written;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const std::string escape = json_escape(next_code_point(text, at));
    written += escape.empty() ? text.substr(begin, at - begin) : escape;
  }
  return written;
}

Automaton::StateId Automaton::add_state() {
  if (states_.size() >= kMaxStates)
    throw UserError({"the constraint of the output", "it is too large",
                     "use smaller counts of repetitions, or fewer parts"});
  states_.emplace_back();
  return static_cast<StateId>(states_.size() - 1);
}

void Automaton::add_edge(StateId from, StateId to, std::uint8_t first, std::uint8_t last) {
  states_[index(from)].edges.push_back({first, last, to});
}

Automaton::StateId Automaton::add_literal(StateId at, std::string_view bytes) {
  for (const char c : bytes) {
    const StateId next = add_state();
    const auto byte = static_cast<std::uint8_t>(c);
    add_edge(at, next, byte, byte);
    at = next;
  }
  return at;
}

Automaton::StateId Automaton::add_characters(StateId at, const CodePoints& set, TextForm form) {
  const StateId end = add_state();
  std::map<ByteRanges, StateId> shared;  // by the bytes that follow a state
  const auto add_sequence = [&](const ByteRanges& ranges) {
    StateId to = end;
    for (std::size_t i = ranges.size() - 1; i > 0; --i) {
      const auto [place, is_new] = shared.try_emplace(
          ByteRanges(ranges.begin() + static_cast<std::ptrdiff_t>(i), ranges.end()), 0);
      if (is_new) {
        place->second = add_state();
        add_edge(place->second, to, ranges[i].first, ranges[i].second);
      }
      to = place->second;
    }
    add_edge(at, to, ranges.front().first, ranges.front().second);
  };
  CodePoints raw = set;
  if (form == TextForm::json_string) {
    CodePoints left_out = set.complement();
    for (char32_t c = 0; c <= '\\'; ++c) {
      const std::string escape = json_escape(c);
      if (escape.empty()) continue;
      left_out.add(c, c);
      if (set.contains(c)) add_skip(add_literal(at, escape), end);
    }
    raw = left_out.complement();
  }
  for (const auto& [first, last] : raw.ranges()) split_utf8(first, last, add_sequence);
  return end;
}

Automaton::StateId Automaton::add_call(StateId at, std::int32_t rule) {
  const StateId to = add_state();
  states_[index(at)].calls.push_back({rule, to});
  return to;
}

std::int32_t Automaton::add_rule() {
  const StateId begin = add_state(), end = add_state();
  states_[index(end)].is_end = true;
  rules_.push_back({begin, end});
  return static_cast<std::int32_t>(rules_.size() - 1);
}

std::vector<bool> Automaton::finishable(const Bytes& bytes) const {
  std::vector<bool> result(states_.size());
  const auto is_finishable = [&](StateId id) { return result[index(id)]; };
  const auto has_byte = [&](const Edge& edge) {
    for (unsigned byte = edge.first; byte <= edge.last; ++byte)
      if (bytes[byte]) return true;
    return false;
  };
  // Most edges lead to states that were added later.
  for (bool changes = true; changes;) {
    changes = false;
    for (std::size_t i = states_.size(); i-- > 0;) {
      const State& state = states_[i];
      if (result[i]) continue;
      result[i] = state.is_end || std::ranges::any_of(state.skips, is_finishable) ||
                  std::ranges::any_of(
                      state.edges,
                      [&](const Edge& edge) { return is_finishable(edge.to) && has_byte(edge); }) ||
                  std::ranges::any_of(state.calls, [&](const Call& call) {
                    return is_finishable(rule(call.rule).begin) && is_finishable(call.to);
                  });
      changes = changes || result[i];
    }
  }
  return result;
}

void Automaton::trim() {
  const std::vector<bool> keeps = finishable(Bytes().set());
  const auto is_dead = [&](StateId id) { return !keeps[index(id)]; };
  for (State& state : states_) {
    std::erase_if(state.edges, [&](const Edge& edge) { return is_dead(edge.to); });
    std::erase_if(state.skips, is_dead);
    std::erase_if(state.calls, [&](const Call& call) {
      return is_dead(call.to) || is_dead(rule(call.rule).begin);
    });
  }
  check_recursion();
}

void Automaton::check_recursion() const {
  const std::vector<bool> may_be_empty = finishable({});
  std::vector<std::size_t> seen(states_.size(), rules_.size());  // the last rule that came by
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    std::vector<StateId> left = {rules_[i].begin};
    const auto visit = [&](StateId to) {
      if (to == rules_[i].begin)
        throw UserError({"the constraint of the output",
                         "a definition refers to itself before it has a text",
                         "put what it refers to into a member or an element"});
      if (std::exchange(seen[index(to)], i) != i) left.push_back(to);
    };
    while (!left.empty()) {
      const State& from = state(left.back());
      left.pop_back();
      for (const StateId to : from.skips) visit(to);
      for (const Call& call : from.calls) {
        visit(rule(call.rule).begin);
        if (may_be_empty[index(rule(call.rule).begin)]) visit(call.to);
      }
    }
  }
}

}  // namespace megatron
