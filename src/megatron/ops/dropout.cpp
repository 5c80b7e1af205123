#include "megatron/ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/row_operations.h"

namespace megatron {

kernels::RowCoordinates hidden_coordinates(const at::Tensor& shape, const DropoutSite& site,
                                           std::int64_t s_start) {
  if (!site.active()) return {};
  const std::int64_t b = shape.size(1);
  const auto h = static_cast<std::uint64_t>(shape.size(2));
  return {.ordinals = dropout_ordinals(site, shape, b),
          .middle = 1,
          .inner = b,
          .base = static_cast<std::uint64_t>(s_start) * h,
          .outer_step = h,
          .middle_step = 0,
          .inner_step = 0,
          .sample_is_inner = true};
}

namespace {

/// Applies dropout to x and adds `residual`, which may be undefined.
at::Tensor differentiable_dropout(const at::Tensor& input, const at::Tensor& residual,
                                  const DropoutSite& site, std::int64_t s_start) {
  return differentiable(
             {.name = "DropoutAddBackward"}, {input, residual},
             [&] {
               const at::Tensor x = input.contiguous();
               at::Tensor out = residual.defined() ? at::empty(x.sizes(), residual.options())
                                                   : at::empty_like(x);
               dropout_rows(x, residual.defined() ? residual.contiguous() : at::Tensor(), out,
                            hidden_coordinates(x, site, s_start), dropout_rule(site));
               return Recorded{
                   .outputs = {out},
                   .saved = {},
                   .backward = [site, s_start, type = x.scalar_type(),
                                has_residual = residual.defined()](BackwardPass& pass) -> Tensors {
                     const at::Tensor dy = pass.gradients[0].contiguous();
                     at::Tensor dx = at::empty(dy.sizes(), dy.options().dtype(type));
                     dropout_rows(dy, at::Tensor(), dx, hidden_coordinates(dy, site, s_start),
                                  dropout_rule(site));
                     return {dx, has_residual ? pass.gradients[0] : at::Tensor()};
                   }};
             })
      .front();
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
                 "dropout needs one ordinal per sample");
  MEGATRON_CHECK(site.sample_ordinals.device() == x.device(), "sample ordinals on ",
                 site.sample_ordinals.device().str(), ", numbers on ", x.device().str());
  return static_cast<const std::int64_t*>(site.sample_ordinals.const_data_ptr());
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site,
                       std::int64_t s_start) {
  if (!site.active()) return x + residual;
  return differentiable_dropout(x, residual, site, s_start);
}

at::Tensor dropout(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start) {
  if (!site.active()) return x;
  return differentiable_dropout(x, at::Tensor(), site, s_start);
}

void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, const ScoreBlock& block) {
  const std::int64_t b = probabilities.size(0);
  const auto row_step = static_cast<std::uint64_t>(block.total_k),
             head_step = static_cast<std::uint64_t>(block.total_q) * row_step;
  const kernels::RowCoordinates coordinates{
      .ordinals = dropout_ordinals(site, probabilities, b),
      .middle = probabilities.size(1),
      .inner = probabilities.size(2),
      .base = static_cast<std::uint64_t>(block.first_head) * head_step +
              static_cast<std::uint64_t>(block.q_start) * row_step +
              static_cast<std::uint64_t>(block.k_start),
      .outer_step = 0,
      .middle_step = head_step,
      .inner_step = row_step,
      .sample_is_inner = false};
  dropout_rows(probabilities, at::Tensor(), probabilities, coordinates, dropout_rule(site));
}

}  // namespace megatron
