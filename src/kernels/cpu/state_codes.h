// The codes of 8-bit optimizer state.
#pragma once

#include "kernels/state_code.h"

namespace megatron::kernels {

/// The dynamic code of Dettmers et al. (kernels/state_code.h) for signed numbers, with −1 in place
/// of the number next to it, so that the largest of a block is exact whatever its sign.
const StateCode& dynamic_code();
/// The dynamic code of the paper for non-negative numbers.
const StateCode& unsigned_dynamic_code();
/// The numbers of FP8 E4M3 divided by the largest, 448.
const StateCode& e4m3_code(bool is_non_negative);

}  // namespace megatron::kernels
