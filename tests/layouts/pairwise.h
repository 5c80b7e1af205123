// Chooses a few of many combinations so that every pair of values of two choices occurs, or every
// pair of those two choices that a table names.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace megatron::layouts {

/// Two choices whose values are to meet; a choice with itself stands for its values alone.
using ChoicePairs = std::vector<std::pair<std::size_t, std::size_t>>;

/// Returns all pairs of `count` choices.
inline ChoicePairs all_pairs(std::size_t count) {
  ChoicePairs pairs;
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = a + 1; b < count; ++b) pairs.emplace_back(a, b);
  return pairs;
}

/// The pairs of values of N choices, each a number from 0 to 31.
template <std::size_t N>
class PairCoverage {
 public:
  using Choices = std::array<std::int64_t, N>;

  explicit PairCoverage(ChoicePairs pairs) : pairs_(std::move(pairs)) {}

  void add(const Choices& values) {
    visit(values, [this](std::size_t pair) { is_covered_[pair] = true; });
  }
  /// Returns the number of pairs of `values` that no added combination has.
  std::int64_t count_new(const Choices& values) const {
    std::int64_t count = 0;
    visit(values, [&](std::size_t pair) { count += !is_covered_[pair]; });
    return count;
  }

 private:
  static constexpr std::size_t kValues = 32;

  template <class Use>
  void visit(const Choices& values, const Use& use) const {
    for (const auto& [a, b] : pairs_)
      use(((a * N + b) * kValues + static_cast<std::size_t>(values.at(a))) * kValues +
          static_cast<std::size_t>(values.at(b)));
  }

  ChoicePairs pairs_;
  std::vector<bool> is_covered_ = std::vector<bool>(N * N * kValues * kValues);
};

/// Returns a few elements of `all` that have every value of `pairs` of choices which some element
/// has. Each step adds the element with the most new ones and, of these, the one with the largest
/// preference(element, chosen).
template <class T, class ChoicesOf, class Preference>
std::vector<T> cover_pairs(const std::vector<T>& all, const ChoicesOf& choices_of,
                           const Preference& preference, const ChoicePairs& pairs) {
  PairCoverage<std::tuple_size_v<decltype(choices_of(all[0]))>> covered(pairs);
  std::vector<T> chosen;
  while (true) {
    const auto gain = [&](const T& one) { return covered.count_new(choices_of(one)); };
    const T& best = *std::ranges::max_element(
        all, {}, [&](const T& one) { return std::pair(gain(one), preference(one, chosen)); });
    if (gain(best) == 0) return chosen;
    covered.add(choices_of(best));
    chosen.push_back(best);
  }
}

/// The same for all pairs of choices.
template <class T, class ChoicesOf, class Preference>
std::vector<T> cover_pairs(const std::vector<T>& all, const ChoicesOf& choices_of,
                           const Preference& preference) {
  return cover_pairs(all, choices_of, preference,
                     all_pairs(std::tuple_size_v<decltype(choices_of(all[0]))>));
}

}  // namespace megatron::layouts
