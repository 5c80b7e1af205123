// The parameters and their states as the table that update kernels walk: pieces of bounded size, so
// that many small and few large tensors share the threads evenly. The cut depends on shapes only:
// sums over chunks do not change with the number of threads.
#pragma once

#include <vector>

#include "kernels/optimizer_operations.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/optimizer_state.h"

namespace megatron {

/// The states that the configured rule keeps.
std::vector<OptimizerState> make_states(const OptimizerConfig& config, const ParamStore& store,
                                        const MainParameters& main);

/// One chunk for each run of main.sums(). Valid as long as the tensors stay where they are.
std::vector<kernels::UpdateChunk> make_update_chunks(const OptimizerConfig& config,
                                                     const ParamStore& store,
                                                     const MainParameters& main,
                                                     const std::vector<OptimizerState>& states);

kernels::UpdateTypes update_types(const ParamStore& store, const MainParameters& main,
                                  const std::vector<OptimizerState>& states);

}  // namespace megatron
