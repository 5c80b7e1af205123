// Parses --blend-schedule: the weights of the training sources, which change after given
// iterations.
//
//   0: 0.7 web 0.3 books 20000: 0.2 web 0.5 books 0.3 mathematics
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

struct DataConfig;

/// The weights of sources from the iteration after `iteration` on.
struct BlendStep {
  std::int64_t iteration = 0;
  std::vector<std::string> prefixes;
  std::vector<double> weights;  ///< of each prefix, above 0
  bool operator==(const BlendStep&) const = default;
};

/// Parses "ITERATION: WEIGHT PREFIX ..." for each step. White space inside a word separates words
/// too. A single word without a colon at its end is the name of a file with these words. Throws a
/// UserError if the iterations do not increase, a weight is not above zero, a source is given twice
/// in a step, or a step has none.
std::vector<BlendStep> parse_blend_schedule(const std::vector<std::string>& words);

/// Returns what parse_blend_schedule() throws for these settings, or nullopt.
std::optional<UserError::Parts> blend_schedule_mistake(const DataConfig& data);

}  // namespace megatron
