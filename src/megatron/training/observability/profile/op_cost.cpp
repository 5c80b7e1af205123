#include "megatron/training/observability/profile/op_cost.h"

#include <algorithm>
#include <array>

#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Returns the FLOPs of a [.., m, k] times b [.., k, n]; 0 when the shapes do not match.
double gemm_flops(const TensorShape& a, const TensorShape& b) {
  if (a.sizes.size() < 2 || b.sizes.empty()) return 0;
  double flops = 2;
  for (const std::int64_t size : a.sizes) flops *= static_cast<double>(size);
  return b.sizes.size() == 1 ? flops : flops * static_cast<double>(b.sizes.back());
}

/// Returns the FLOPs of one GEMM of all queries with all keys. q [b, h, s, d], k [b, h, t, d].
double score_flops(const TensorShape& q, const TensorShape& k) {
  if (q.sizes.size() != 4 || k.sizes.size() != 4) return 0;
  double flops = 2;
  for (const std::int64_t size : q.sizes) flops *= static_cast<double>(size);
  return flops * static_cast<double>(k.sizes[2]);
}

/// Returns the FLOPs of the GEMMs with k and with v, over unmasked query-key pairs. q [s, b, n, d],
/// k [t, b, g, d], v [t, b, g, e]. Under a causal mask the last query sees every key.
double attention_flops(std::string_view name, std::span<const TensorShape> inputs) {
  const bool backward = name.ends_with("_backward");
  if (inputs.size() < (backward ? 4 : 3)) return 0;
  const TensorShape &q = inputs[backward ? 1 : 0], &k = inputs[backward ? 2 : 1],
                    &v = inputs[backward ? 3 : 2];
  if (q.sizes.size() != 4 || k.sizes.size() != 4 || v.sizes.size() != 4) return 0;
  const auto s = static_cast<double>(q.sizes[0]), t = static_cast<double>(k.sizes[0]);
  const double hidden = name.starts_with("megatron::causal_") ? s * (s - 1) / 2 : 0;
  const double pairs = static_cast<double>(q.sizes[1] * q.sizes[2]) * (s * t - hidden);
  const auto d = static_cast<double>(q.sizes[3]), e = static_cast<double>(v.sizes[3]);
  return 2 * pairs * (backward ? 3 * d + 2 * e : d + e);
}

}  // namespace

double op_flops(std::string_view name, std::span<const TensorShape> inputs) {
  const auto gemm = [&](std::size_t first) {
    return inputs.size() > first + 1 ? gemm_flops(inputs[first], inputs[first + 1]) : 0;
  };
  const auto scores = [&](std::size_t first) {
    return inputs.size() > first + 1 ? score_flops(inputs[first], inputs[first + 1]) : 0;
  };
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv" ||
      name == "megatron::brgemm" || name == "megatron::matmul")
    return gemm(0);
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addbmm" ||
      name == "aten::addmv" || name == "megatron::matmul_out")
    return gemm(1);
  if (name == "aten::dot")
    return inputs.empty() || inputs[0].sizes.empty() ? 0
                                                     : 2 * static_cast<double>(inputs[0].sizes[0]);
  if (name.starts_with("megatron::attention") || name.starts_with("megatron::causal_attention"))
    return attention_flops(name, inputs);
  if (!name.starts_with("aten::_scaled_dot_product_") &&
      !name.starts_with("aten::_flash_attention"))
    return 0;
  return name.find("backward") == std::string_view::npos ? 2 * scores(0) : 5 * scores(1);
}

bool op_moves_data(std::string_view name) {
  static constexpr std::array kViews = std::to_array<std::string_view>({"aten::_reshape_alias",
                                                                        "aten::_unsafe_view",
                                                                        "aten::alias",
                                                                        "aten::as_strided",
                                                                        "aten::chunk",
                                                                        "aten::detach",
                                                                        "aten::detach_",
                                                                        "aten::empty",
                                                                        "aten::empty_like",
                                                                        "aten::empty_strided",
                                                                        "aten::expand",
                                                                        "aten::expand_as",
                                                                        "aten::flatten",
                                                                        "aten::is_nonzero",
                                                                        "aten::item",
                                                                        "aten::movedim",
                                                                        "aten::narrow",
                                                                        "aten::permute",
                                                                        "aten::resize_",
                                                                        "aten::select",
                                                                        "aten::set_",
                                                                        "aten::slice",
                                                                        "aten::split",
                                                                        "aten::squeeze",
                                                                        "aten::t",
                                                                        "aten::transpose",
                                                                        "aten::unbind",
                                                                        "aten::unflatten",
                                                                        "aten::unsqueeze",
                                                                        "aten::view",
                                                                        "aten::view_as",
                                                                        "aten::to",
                                                                        "aten::reshape",
                                                                        "aten::contiguous",
                                                                        "aten::requires_grad_",
                                                                        "aten::lift_fresh",
                                                                        "detach",
                                                                        "aten::resolve_conj",
                                                                        "aten::resolve_neg",
                                                                        "aten::result_type",
                                                                        "aten::split_with_sizes"});
  return std::find(kViews.begin(), kViews.end(), name) == kViews.end();
}

std::string shapes_text(std::span<const TensorShape> shapes) {
  return joined_text(shapes, " ",
                     [](const TensorShape& shape) { return "[" + joined_text(shape.sizes) + "]"; });
}

}  // namespace megatron
