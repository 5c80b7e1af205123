// The size of the weights, for --log-params-norm.
#pragma once

#include "megatron/transformer/param_store.h"

namespace megatron {

/// √ of the per-tensor float64 sums of squares, added in canonical name order.
double params_norm(const ParamStore& weights);

}  // namespace megatron
