// The attention of a run's layers over the ranks of context parallelism, as schedules/ describes
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/cp_comm_type.h"
#include "megatron/schedules/context_exchange.h"

namespace megatron {

struct Settings;

/// Layers with the same attention.
struct ContextLayers {
  CpCommType comm_type = CpCommType::p2p;
  std::vector<std::int64_t> layers;  ///< 0-based, ascending
  ContextAttention attention;
};

/// Returns the attention of all layers, on one rank of tp. The settings must be resolved and valid,
/// with several ranks of cp and a sequence length.
std::vector<ContextLayers> context_layers(const Settings& settings);

}  // namespace megatron
