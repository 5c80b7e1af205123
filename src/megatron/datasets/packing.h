// Puts sequences of different lengths into rows of one length, so that little padding is needed:
// best-fit decreasing, as in "Fewer Truncations Improve Language Modeling" (Ding et al., 2024).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace megatron {

enum class PackingStrategy {
  line,      ///< the conversations of a line make a sequence, as in Megatron-LM
  bfd,       ///< best-fit decreasing; what is longer than a sequence is cut
  bfd_split  ///< best-fit decreasing; what is longer than a sequence is divided
};
inline constexpr std::array kPackingStrategies = {PackingStrategy::line, PackingStrategy::bfd,
                                                  PackingStrategy::bfd_split};

std::string_view packing_strategy_name(PackingStrategy strategy);
/// Returns the strategy of this name, which --sft-packing-strategy has checked.
PackingStrategy packing_strategy(std::string_view name);
/// Returns the strategy of this name, which --document-packing-strategy has checked; nothing for
/// `wrapped`, which packs no documents.
std::optional<PackingStrategy> document_packing_strategy(std::string_view name);

/// The numbers of the sequences that each row holds.
struct Packing {
  std::vector<std::uint32_t> items;
  std::vector<std::size_t> begins = {0};  ///< row i is items[begins[i]] … items[begins[i + 1] − 1]
  std::size_t size() const { return begins.size() - 1; }
  std::span<const std::uint32_t> row(std::size_t i) const {
    return std::span(items).subspan(begins[i], begins[i + 1] - begins[i]);
  }
};

/// Takes the sequences from the longest to the shortest, and puts each into the row whose free
/// space it fills best. Each length is from 1 to `capacity`. A row takes the place of its longest
/// sequence, so that rows follow the order of the sequences, and its items ascend. Of equal lengths
/// the first comes first, so the result depends on nothing but the lengths. Takes O(n log n) time
/// at most, and 16 bytes of memory for each sequence and 8 for each row.
Packing pack_best_fit_decreasing(std::span<const std::int32_t> lengths, std::int64_t capacity);

}  // namespace megatron
