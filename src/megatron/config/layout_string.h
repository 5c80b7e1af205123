// Megatron's language of layouts, "Et*3|(tt|)*5mL": E embedding, t layer, m multi-token prediction,
// L output, | next stage, x*n and (...)*n repeat, commas mean nothing.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

/// The stages in the order of the model, some of them perhaps empty: one E in front of all layers,
/// one L behind them. UserError with the text and a caret under the mistake.
std::vector<StageLayers> parse_layout_string(std::string_view text);

}  // namespace megatron
