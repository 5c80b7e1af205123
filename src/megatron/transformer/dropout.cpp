#include "megatron/transformer/dropout.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <optional>
#include <vector>

#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"

namespace megatron {
namespace {

kernels::DropoutRule rule_of(const DropoutSite& site) {
  MEGATRON_CHECK(site.probability >= 0 && site.probability < 1, "dropout probability ", site.probability);
  return {.key = site.key, .threshold = static_cast<std::uint32_t>(std::floor(site.probability * 0x1p32)), .scale = 1 / (1 - site.probability)};
}

/// Coordinates of every row of a tensor; `ordinal_of_row` gives the sample of a row.
struct Coordinates {
  std::vector<std::uint64_t> first_element, ordinal;
  kernels::RowCoordinates from(std::int64_t row) const { return {first_element.data() + row, ordinal.data() + row}; }
};

Coordinates hidden_coordinates(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start) {
  const std::int64_t s = x.size(0), b = x.size(1), h = x.size(2);
  MEGATRON_CHECK(site.sample_ordinals.defined() && site.sample_ordinals.numel() == b, "dropout needs one ordinal per sample");
  const auto* ordinals = site.sample_ordinals.const_data_ptr<std::int64_t>();
  Coordinates result;
  result.first_element.reserve(s * b);
  result.ordinal.reserve(s * b);
  for (std::int64_t i = 0; i < s; ++i) {
    for (std::int64_t j = 0; j < b; ++j) {
      result.first_element.push_back(static_cast<std::uint64_t>((s_start + i) * h));
      result.ordinal.push_back(static_cast<std::uint64_t>(ordinals[j]));
    }
  }
  return result;
}

/// out = residual + dropout(x) over contiguous rows; `residual` may be undefined, `out` may be x.
void run_rows(const at::Tensor& x, const at::Tensor& residual, at::Tensor& out, std::int64_t columns, const Coordinates& coordinates,
              kernels::DropoutRule rule) {
  const std::int64_t rows = x.numel() / columns, grain = std::max<std::int64_t>(1, 16384 / columns);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropout", [&] {
    const auto* in = x.const_data_ptr<scalar_t>();
    const auto* base = residual.defined() ? residual.const_data_ptr<scalar_t>() : nullptr;
    auto* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t offset = begin * columns;
      kernels::row_kernels<scalar_t>().dropout(in + offset, base != nullptr ? base + offset : nullptr, to + offset, end - begin, columns,
                                               coordinates.from(begin), rule);
    });
  });
}

struct DropoutAdd : torch::autograd::Function<DropoutAdd> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& residual, const DropoutSite& site,
                            std::int64_t s_start) {
    context->saved_data["key"] = static_cast<std::int64_t>(site.key);
    context->saved_data["probability"] = site.probability;
    context->saved_data["ordinals"] = site.sample_ordinals;
    context->saved_data["s_start"] = s_start;
    context->saved_data["has_residual"] = residual.has_value();
    const at::Tensor rows = x.contiguous();
    at::Tensor out = at::empty_like(rows);
    run_rows(rows, residual ? residual->contiguous() : at::Tensor(), out, x.size(-1), hidden_coordinates(x, site, s_start), rule_of(site));
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const DropoutSite site{.probability = context->saved_data["probability"].toDouble(),
                           .key = static_cast<std::uint64_t>(context->saved_data["key"].toInt()),
                           .sample_ordinals = context->saved_data["ordinals"].toTensor()};
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(dy);
    run_rows(dy, at::Tensor(), dx, dy.size(-1), hidden_coordinates(dy, site, context->saved_data["s_start"].toInt()), rule_of(site));
    return {dx, context->saved_data["has_residual"].toBool() ? gradients[0] : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site, std::int64_t s_start) {
  if (!site.active()) return x + residual;
  return DropoutAdd::apply(x, std::optional(residual), site, s_start);
}

at::Tensor dropout(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start) {
  if (!site.active()) return x;
  return DropoutAdd::apply(x, std::optional<at::Tensor>(), site, s_start);
}

void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, std::int64_t q_start, std::int64_t total_q, std::int64_t k_start,
                     std::int64_t total_k) {
  const std::int64_t b = probabilities.size(0), n = probabilities.size(1), rows = probabilities.size(2);
  MEGATRON_CHECK(site.sample_ordinals.defined() && site.sample_ordinals.numel() == b, "dropout needs one ordinal per sample");
  const auto* ordinals = site.sample_ordinals.const_data_ptr<std::int64_t>();
  Coordinates coordinates;
  coordinates.first_element.reserve(b * n * rows);
  coordinates.ordinal.reserve(b * n * rows);
  for (std::int64_t sample = 0; sample < b; ++sample) {
    for (std::int64_t head = 0; head < n; ++head) {
      for (std::int64_t row = 0; row < rows; ++row) {
        coordinates.first_element.push_back(static_cast<std::uint64_t>((head * total_q + q_start + row) * total_k + k_start));
        coordinates.ordinal.push_back(static_cast<std::uint64_t>(ordinals[sample]));
      }
    }
  }
  run_rows(probabilities, at::Tensor(), probabilities, probabilities.size(3), coordinates, rule_of(site));
}

}  // namespace megatron
