// Chooses a few of many combinations so that every pair of values of two choices occurs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace megatron::layouts {

/// The pairs of values of N choices, each a number from 0 to 31.
template <std::size_t N>
class PairCoverage {
 public:
  using Choices = std::array<std::int64_t, N>;

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
  static void visit(const Choices& values, const Use& use) {
    for (std::size_t a = 0; a < N; ++a) {
      for (std::size_t b = a + 1; b < N; ++b)
        use(((a * N + b) * kValues + static_cast<std::size_t>(values.at(a))) * kValues +
            static_cast<std::size_t>(values.at(b)));
    }
  }

  std::vector<bool> is_covered_ = std::vector<bool>(N * N * kValues * kValues);
};

/// Returns a few elements of `all` that have every pair of choices which some element has. Each
/// step adds the element with the most new pairs and, of these, the one with the largest
/// preference(element, chosen).
template <class T, class ChoicesOf, class Preference>
std::vector<T> cover_pairs(const std::vector<T>& all, const ChoicesOf& choices_of,
                           const Preference& preference) {
  PairCoverage<std::tuple_size_v<decltype(choices_of(all[0]))>> covered;
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

}  // namespace megatron::layouts
