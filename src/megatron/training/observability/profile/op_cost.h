// Estimates the cost of a LibTorch operator from its name and the shapes of its tensors. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct TensorShape {
  std::vector<std::int64_t> sizes;
  double bytes = 0;
};

/// Returns the floating-point operations of an operator, counting 2 per multiply-add. Covers mm,
/// our brgemm and matmul, addmm, bmm, baddbmm, addbmm, mv, addmv, dot and scaled dot-product
/// attention (2 GEMMs forward, 5 backward). Our causal attention counts only unmasked query-key
/// pairs; LibTorch's counts all. Returns 0 for memory-bound operators.
double op_flops(std::string_view name, std::span<const TensorShape> inputs);

/// Returns false for operators that only create a view or allocate memory.
bool op_moves_data(std::string_view name);

/// Returns shapes as text: "[8, 128] [128, 64]".
std::string shapes_text(std::span<const TensorShape> shapes);

}  // namespace megatron
