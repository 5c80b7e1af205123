// Builds the table of chunks that update kernels walk. Chunks have bounded size, so that many small
// and few large tensors are shared evenly among threads. Chunk boundaries depend on shapes only, so
// that sums over chunks do not depend on the number of threads.
#pragma once

#include <vector>

#include "kernels/optimizer_operations.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/optimizer_state.h"

namespace megatron {

/// Creates the states that the configured update rule keeps.
std::vector<OptimizerState> make_states(const OptimizerConfig& config, const ParamStore& store,
                                        const MainParameters& main);

/// Returns one chunk for each range of main.sums(). The chunks point into the tensors and are valid
/// as long as those keep their storage.
std::vector<kernels::UpdateChunk> make_update_chunks(const OptimizerConfig& config,
                                                     const ParamStore& store,
                                                     const MainParameters& main,
                                                     const std::vector<OptimizerState>& states);

kernels::UpdateTypes update_types(const ParamStore& store, const MainParameters& main,
                                  const std::vector<OptimizerState>& states);

}  // namespace megatron
