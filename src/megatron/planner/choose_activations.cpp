#include "megatron/planner/choose_activations.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace megatron {
namespace {

/// A sum over the first layers that no other sum beats in both bytes and time.
struct Sum {
  std::int64_t bytes = 0, more_ns = 0;
  std::size_t from = 0, choice = 0;  ///< the sum over one layer less, and the choice added to it
};
using Front = std::vector<Sum>;  ///< ascending in bytes, descending in time

/// Returns the sums with one more layer, of at most `available` bytes.
Front extended(const Front& front, const std::vector<ActivationChoice>& choices,
               std::int64_t most_in_backward, std::int64_t available) {
  Front all;
  for (std::size_t from = 0; from < front.size(); ++from) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::int64_t bytes = front[from].bytes + choices[i].kept_bytes;
      if (choices[i].backward_bytes > most_in_backward || bytes > available) continue;
      all.push_back({bytes, front[from].more_ns + choices[i].more_ns, from, i});
    }
  }
  std::ranges::sort(all, {}, [](const Sum& s) { return std::tuple(s.bytes, s.more_ns); });
  Front best;
  for (const Sum& sum : all)
    if (best.empty() || sum.more_ns < best.back().more_ns) best.push_back(sum);
  return best;
}

/// Searches among the choices that hold at most `most_in_backward` bytes in backward.
std::optional<ChosenActivations> choose_within(
    const std::vector<std::size_t>& kinds,
    const std::vector<std::vector<ActivationChoice>>& choices_of_kind,
    std::int64_t most_in_backward, std::int64_t available) {
  std::vector<Front> fronts{{Sum{}}};
  for (const std::size_t kind : kinds) {
    fronts.push_back(
        extended(fronts.back(), choices_of_kind.at(kind), most_in_backward, available));
    if (fronts.back().empty()) return std::nullopt;
  }
  const Sum& best = fronts.back().back();  // the least time
  ChosenActivations chosen{.choices = std::vector<std::size_t>(kinds.size()),
                           .bytes = best.bytes,
                           .more_ns = best.more_ns};
  std::size_t at = fronts.back().size() - 1;
  std::int64_t in_backward = 0;
  for (std::size_t layer = kinds.size(); layer-- > 0;) {
    const Sum& sum = fronts[layer + 1][at];
    chosen.choices[layer] = sum.choice;
    in_backward =
        std::max(in_backward, choices_of_kind.at(kinds[layer])[sum.choice].backward_bytes);
    at = sum.from;
  }
  chosen.bytes += in_backward;
  return chosen;
}

}  // namespace

std::optional<ChosenActivations> choose_activations(
    const std::vector<std::size_t>& kinds,
    const std::vector<std::vector<ActivationChoice>>& choices_of_kind,
    std::int64_t available_bytes) {
  // The largest backward of the best solution is that of some choice.
  std::set<std::int64_t> bounds;
  for (const auto& choices : choices_of_kind)
    for (const ActivationChoice& choice : choices) bounds.insert(choice.backward_bytes);
  std::optional<ChosenActivations> best;
  for (const std::int64_t bound : bounds) {
    auto found = choose_within(kinds, choices_of_kind, bound, available_bytes - bound);
    if (found && (!best || std::tuple(found->more_ns, found->bytes) <
                               std::tuple(best->more_ns, best->bytes)))
      best = std::move(found);
  }
  return best;
}

}  // namespace megatron
