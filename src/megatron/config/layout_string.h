// Parses Megatron's pipeline layouts, such as "Et*3|(tt|)*5mL": E embedding, t layer, m multi-token
// prediction, L output, | next stage. x*n and (...)*n repeat; commas are ignored.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

/// Returns the stages in the order of the model. Stages may be empty. There must be one E before
/// all layers and one L after them, and any m must be in one stage, between both. Throws a
/// UserError with the text and a caret under the mistake.
std::vector<StageLayers> parse_layout_string(std::string_view text);

}  // namespace megatron
