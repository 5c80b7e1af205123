// How a run's settings bind the weights of a rank.
#pragma once

#include <c10/core/ScalarType.h>

#include "megatron/params/param_store.h"

namespace megatron {

struct Rank;
struct Settings;
struct TrainingConfig;

/// Returns the device, the dtypes of weights (`dtype`) and main gradients, and the axes that share
/// them. Collective as data_parallel() and expert_groups() are, which take `communicators`.
ParamStore::Options store_options(const Settings& settings, const Rank& rank, c10::ScalarType dtype,
                                  Communicators* communicators);

/// Returns the dtype of the weights that layers compute with.
c10::ScalarType params_dtype(const TrainingConfig& training);

}  // namespace megatron
