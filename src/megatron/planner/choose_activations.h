// The cheapest way to fit activations into memory: an exact search over the choices of every layer,
// a multiple-choice knapsack (Sinha and Zoltners 1979) by dynamic programming over all sums of
// bytes and time that no other sum beats in both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace megatron {

/// One way in which a layer may treat its activations.
struct ActivationChoice {
  std::int64_t kept_bytes = 0;      ///< from forward to backward, of all microbatches in flight
  std::int64_t backward_bytes = 0;  ///< held for a moment, in the layer's backward
  std::int64_t more_ns = 0;         ///< added to the step
};

struct ChosenActivations {
  std::vector<std::size_t> choices;  ///< of each layer, an index into those of its kind
  std::int64_t bytes = 0;            ///< the sum of kept_bytes and the largest backward_bytes
  std::int64_t more_ns = 0;
};

/// Returns the choices of the least time for which the bytes of all layers kept, and the most that
/// one holds in backward, are at most `available_bytes`; of these the one of the fewest bytes.
/// Layer i has the choices of kind kinds[i]. Returns nullopt if nothing fits.
std::optional<ChosenActivations> choose_activations(
    const std::vector<std::size_t>& kinds,
    const std::vector<std::vector<ActivationChoice>>& choices_of_kind,
    std::int64_t available_bytes);

}  // namespace megatron
