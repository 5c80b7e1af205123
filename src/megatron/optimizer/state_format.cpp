#include "megatron/optimizer/state_format.h"

#include "kernels/cpu/state_codes.h"

namespace megatron {

StateFormat state_format(const std::string& name, bool is_non_negative) {
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  if (name == "int8")
    return {at::kByte,
            is_non_negative ? &kernels::unsigned_dynamic_code() : &kernels::dynamic_code()};
  if (name == "fp8") return {at::kByte, &kernels::e4m3_code(is_non_negative)};
  return at::kFloat;
}

}  // namespace megatron
