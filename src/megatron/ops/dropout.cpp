#include "megatron/ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/base/philox.h"
#include "megatron/ops/cuda_row_operations.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {

namespace {

/// Returns the data of int64 numbers, null if they are undefined. Those of the meta device have an
/// address that nothing may read.
const std::int64_t* data_of(const at::Tensor& numbers) {
  return numbers.defined() ? static_cast<const std::int64_t*>(numbers.const_data_ptr()) : nullptr;
}

}  // namespace

kernels::RowCoordinates hidden_coordinates(const at::Tensor& hidden, const DropoutSite& site) {
  if (!site.active()) return {};
  MEGATRON_CHECK(hidden.dim() == 3, "dropout of hidden rows ", hidden.sizes());
  const at::Tensor& positions = site.positions.each;
  MEGATRON_CHECK(
      !positions.defined() || (positions.numel() == hidden.size(0) && positions.is_contiguous() &&
                               positions.device() == hidden.device()),
      positions.numel(), " positions on ", positions.device(), " for rows of ", hidden.sizes());
  const std::int64_t s = hidden.size(0), b = hidden.size(1);
  const auto h = static_cast<std::uint64_t>(hidden.size(2));
  // Rows of packed sequences (b = 1) each have the ordinal of their sequence.
  const bool is_packed = b == 1 && site.sample_ordinals.numel() == s;
  return {.ordinals = dropout_ordinals(site, hidden, is_packed ? s : b),
          .positions = data_of(positions),
          .middle = 1,
          .inner = b,
          .base = positions.defined() ? 0 : static_cast<std::uint64_t>(site.positions.first) * h,
          .outer_step = h,
          .middle_step = 0,
          .inner_step = 0,
          .sample_is_inner = !is_packed};
}

namespace {

/// Checks two dtypes of one kernel: they must be equal, or one must be float32 and the other 16
/// bits wide.
void check_pair(const at::Tensor& a, const at::Tensor& b) {
  const auto is_half = [](const at::Tensor& x) { return x.element_size() == 2; };
  const auto is_float = [](const at::Tensor& x) { return x.scalar_type() == c10::kFloat; };
  MEGATRON_CHECK(a.scalar_type() == b.scalar_type() || (is_float(a) && is_half(b)) ||
                     (is_half(a) && is_float(b)),
                 "dropout from ", c10::toString(a.scalar_type()), " to ",
                 c10::toString(b.scalar_type()));
}

void launch_on_cpu(const kernels::DropoutArguments& arguments) {
  parallel_kernel(kernels::row_kernels().dropout, arguments, arguments.rows, arguments.columns);
}

void launch_on_cuda(const kernels::DropoutArguments& arguments) {
  cuda_row_operations().dropout(arguments);
}

void launch_nothing(const kernels::DropoutArguments&) {}  // meta tensors have no data

/// Computes out = residual + dropout(x) over contiguous rows of the last dimension. `residual` is
/// undefined or like out, and out may alias x.
template <auto launch>
void run(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& out,
         const kernels::RowCoordinates& coordinates, const kernels::DropoutRule& rule) {
  if (x.numel() == 0) return;
  check_pair(x, out);
  const std::int64_t columns = x.size(-1);
  launch(kernels::DropoutArguments{.x = x.const_data_ptr(),
                                   .residual = data_or_null(residual),
                                   .out = out.mutable_data_ptr(),
                                   .x_type = kernel_type(x.scalar_type()),
                                   .out_type = kernel_type(out.scalar_type()),
                                   .rows = x.numel() / columns,
                                   .columns = columns,
                                   .coordinates = coordinates,
                                   .rule = rule});
}

template <auto launch>
at::Tensor dropout_add_kernel(const at::Tensor& input, const std::optional<at::Tensor>& residual,
                              const DropoutSite& site, c10::ScalarType type) {
  const at::Tensor x = input.contiguous().flatten(2),  // the streams of a row follow one another
      added = residual ? residual->contiguous() : at::Tensor();
  const at::Tensor out = at::empty(input.sizes(), x.options().dtype(type));
  run<launch>(x, added, out, hidden_coordinates(x, site), dropout_rule(site));
  return out;
}

template <auto launch>
void dropout_scores_kernel(const at::Tensor& probabilities, const DropoutSite& site,
                           const ScoreBlock& block) {
  const auto row_step = static_cast<std::uint64_t>(block.total_k),
             head_step = static_cast<std::uint64_t>(block.total_q) * row_step;
  const kernels::RowCoordinates coordinates{
      .ordinals = dropout_ordinals(site, probabilities, probabilities.size(0)),
      .positions = nullptr,
      .middle = probabilities.size(1),
      .inner = probabilities.size(2),
      .base = static_cast<std::uint64_t>(block.first_head) * head_step +
              static_cast<std::uint64_t>(block.q_start) * row_step +
              static_cast<std::uint64_t>(block.k_start),
      .outer_step = 0,
      .middle_step = head_step,
      .inner_step = row_step,
      .sample_is_inner = false};
  run<launch>(probabilities, at::Tensor(), probabilities, coordinates, dropout_rule(site));
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  using Key = c10::DispatchKey;
  define_operator<dropout_add_kernel<launch_on_cpu>>(library, "dropout_add");
  register_kernel<dropout_add_kernel<launch_on_cuda>>(library, "dropout_add", Key::CUDA);
  register_kernel<dropout_add_kernel<launch_nothing>>(library, "dropout_add", Key::Meta);
  define_operator<dropout_scores_kernel<launch_on_cpu>>(
      library,
      "dropout_scores_(Tensor(a!) probabilities, Tensor? ordinals, float probability, int key, "
      "int first, Tensor? positions, int first_head, int q_start, int total_q, int k_start, "
      "int total_k) -> ()");
  register_kernel<dropout_scores_kernel<launch_on_cuda>>(library, "dropout_scores_", Key::CUDA);
  register_kernel<dropout_scores_kernel<launch_nothing>>(library, "dropout_scores_", Key::Meta);
}

at::Tensor dropout_add_op(const at::Tensor& x, const at::Tensor& residual, c10::ScalarType type,
                          const DropoutSite& site) {
  static const Operator<dropout_add_kernel<launch_on_cpu>> op("megatron::dropout_add");
  return op(x, optional_tensor(residual), site, type);
}

/// Applies dropout to x and adds `residual`, which may be undefined.
at::Tensor differentiable_dropout(const at::Tensor& x, const at::Tensor& residual,
                                  const DropoutSite& site) {
  const bool has_residual = residual.defined();
  Recording recording({.name = "DropoutAddBackward"}, {x, residual});
  const auto type = has_residual ? residual.scalar_type() : x.scalar_type();
  return recording.finish(
      dropout_add_op(x, residual, type, site), {},
      [site, has_residual, type = x.scalar_type()](BackwardPass& pass) -> Tensors {
        const at::Tensor& dy = pass.gradients[0];
        return {dropout_as(dy, type, site), has_residual ? dy : at::Tensor()};
      });
}

}  // namespace

kernels::DropoutRule dropout_rule(const DropoutSite& site) {
  MEGATRON_CHECK(site.probability >= 0 && site.probability < 1, "dropout probability ",
                 site.probability);
  return {.key = site.key,
          .threshold = static_cast<std::uint32_t>(std::floor(site.probability * 0x1p32)),
          .scale = 1 / (1 - site.probability)};
}

const std::int64_t* dropout_ordinals(const DropoutSite& site, const at::Tensor& x,
                                     std::int64_t samples) {
  MEGATRON_CHECK(site.sample_ordinals.defined() && site.sample_ordinals.numel() == samples &&
                     site.sample_ordinals.is_contiguous(),
                 site.sample_ordinals.numel(), " ordinals for ", samples, " samples");
  MEGATRON_CHECK(site.sample_ordinals.device() == x.device(), "sample ordinals on ",
                 site.sample_ordinals.device().str(), ", numbers on ", x.device().str());
  return data_of(site.sample_ordinals);
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site) {
  if (!site.active()) return x + residual;
  return differentiable_dropout(x, residual, site);
}

at::Tensor dropout(const at::Tensor& x, const DropoutSite& site) {
  if (!site.active()) return x;
  return differentiable_dropout(x, at::Tensor(), site);
}

at::Tensor dropout_as(const at::Tensor& x, c10::ScalarType type, const DropoutSite& site) {
  return site.active() ? dropout_add_op(x, at::Tensor(), type, site) : x.to(type);
}

void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, const ScoreBlock& block) {
  static const Operator<dropout_scores_kernel<launch_on_cpu>> op("megatron::dropout_scores_");
  op(probabilities, site, block);
}

at::Tensor coordinate_uniforms(at::IntArrayRef shape, std::uint64_t key, const at::Tensor& ordinals,
                               const RowPositions& positions) {
  if (ordinals.is_meta()) return at::empty(shape, ordinals.options().dtype(at::kFloat));
  const std::int64_t batch = shape[1], columns = shape[2];
  const bool is_packed = positions.ordinals.defined();
  const at::Tensor samples = (is_packed ? positions.ordinals : ordinals).cpu().contiguous(),
                   places =
                       positions.each.defined()
                           ? positions.each.cpu().contiguous()
                           : at::arange(positions.first, positions.first + shape[0], at::kLong),
                   out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  const auto* sample = samples.const_data_ptr<std::int64_t>();
  const auto* place = places.const_data_ptr<std::int64_t>();
  auto* to = out.mutable_data_ptr<float>();
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(columns, 1));
  at::parallel_for(0, shape[0] * batch, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = place[row / batch] * columns;
      std::array<std::uint32_t, 4> lanes{};
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto element = static_cast<std::uint64_t>(first + c);
        if (c == 0 || element % 4 == 0)
          lanes = philox_block(key, element / 4,
                               static_cast<std::uint64_t>(sample[is_packed ? row : row % batch]));
        to[row * columns + c] = (static_cast<float>(lanes[element % 4] >> 9) + 0.5f) * 0x1p-23f;
      }
    }
  });
  return out.to(ordinals.device());
}

}  // namespace megatron
