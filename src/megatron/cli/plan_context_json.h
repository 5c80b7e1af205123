// The output of `megatron plan --show-context --json`.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "megatron/config/context_layers.h"
#include "megatron/schedules/draw_context.h"

namespace megatron {

/// Layers with the same attention, and their simulated passes.
struct PlannedContextLayers {
  ContextLayers layers;
  std::array<ContextPass, 2> passes;
};

/// Returns the positions of each rank, and for each kind of layer every step of both passes.
std::string context_json(const std::vector<PlannedContextLayers>& all);

}  // namespace megatron
