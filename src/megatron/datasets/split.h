// --split: which part of a corpus trains, validates and tests, with megatron-core's arithmetic to
// the last bit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

enum class Split { train, valid, test };
inline constexpr std::array<Split, 3> kSplits = {Split::train, Split::valid, Split::test};

std::string_view split_name(Split split);

/// Begin and end of every split as fractions of the corpus; nothing for a split of width zero.
using SplitMatrix = std::array<std::optional<std::pair<double, double>>, 3>;

/// Parses weights such as "969, 30, 1" (one to three, padded with zeros).
SplitMatrix parse_split(const std::string& text);

/// The elements [begin, end) of `count` that a split covers, rounded half to even as Python's
/// round().
std::pair<std::int64_t, std::int64_t> split_range(std::pair<double, double> bookends,
                                                  std::int64_t count);

/// Divides by the sum; the sum in numpy's pairwise order.
std::vector<double> normalize(std::vector<double> weights);

}  // namespace megatron
