// Evaluates --split, which divides a corpus into training, validation and test data. The arithmetic
// equals megatron-core's to the last bit.
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

/// Begin and end of every split as fractions of the corpus; nullopt for an empty split.
using SplitMatrix = std::array<std::optional<std::pair<double, double>>, 3>;

/// Parses one to three weights such as "969, 30, 1"; missing ones are 0.
SplitMatrix parse_split(const std::string& text);

/// Returns the elements [begin, end) of `count` that a split covers. Bounds are rounded half to
/// even as by Python's round().
std::pair<std::int64_t, std::int64_t> split_range(std::pair<double, double> bookends,
                                                  std::int64_t count);

/// Divides the weights by their sum, which is computed in numpy's pairwise order.
std::vector<double> normalize(std::vector<double> weights);

}  // namespace megatron
