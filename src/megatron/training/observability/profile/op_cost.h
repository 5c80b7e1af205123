// What an operation of LibTorch costs by its name and the shapes of its tensors. Pure.
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

/// Floating-point operations, 2 per multiply-add: mm, our brgemm and matmul, addmm, bmm, baddbmm,
/// addbmm, mv, addmv, dot and scaled dot-product attention (2 products forward, 5 backward; causal
/// attention by the pairs that meet, of LibTorch as full); 0 for what is bound by memory.
double op_flops(std::string_view name, std::span<const TensorShape> inputs);

/// False for operations that only make a new view or set memory aside.
bool op_moves_data(std::string_view name);

/// "[8, 128] [128, 64]".
std::string shapes_text(std::span<const TensorShape> shapes);

}  // namespace megatron
