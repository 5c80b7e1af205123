#include "megatron/ops/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/logsumexp.h>

#include <limits>

#include "kernels/cpu/cross_entropy.h"
#include "megatron/base/error.h"
#include "megatron/ops/host_scalar.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/op_scope.h"

namespace megatron {
namespace {

/// The column of each label (arbitrary when it is not in range), and whether the label is in range.
struct LabelColumns {
  at::Tensor columns, here;
};

LabelColumns columns_of(const LabelledLogits& rows) {
  const at::Tensor column = rows.labels - rows.first;
  const at::Tensor here = (column >= 0).logical_and(column < rows.logits.size(1));
  return {column.masked_fill(here.logical_not(), 0).unsqueeze(1), here};
}

double bytes_of(const at::Tensor& x) { return static_cast<double>(x.nbytes()); }

kernels::CrossEntropyRows kernel_rows(const LabelledLogits& rows) {
  const at::Tensor& logits = rows.logits;
  MEGATRON_CHECK(logits.stride(1) == 1 && rows.labels.is_contiguous() &&
                     rows.labels.scalar_type() == at::kLong,
                 "logits and labels of a loss");
  return {.logits = logits.const_data_ptr(),
          .type = kernel_type(logits.scalar_type()),
          .row_stride = logits.stride(0),
          .columns = logits.size(1),
          .first_column = rows.first,
          .labels = rows.labels.const_data_ptr<std::int64_t>()};
}

}  // namespace

void cross_entropy_statistics(const LabelledLogits& rows, at::Tensor lse, at::Tensor label_logit) {
  if (rows.logits.size(1) == 0) {
    lse.fill_(-std::numeric_limits<double>::infinity());
    label_logit.zero_();
    return;
  }
  if (!rows.logits.is_cpu()) {
    const LabelColumns labels = columns_of(rows);
    lse.copy_(at::logsumexp(rows.logits, {1}));
    label_logit.copy_(
        rows.logits.gather(1, labels.columns).squeeze(1).masked_fill(labels.here.logical_not(), 0));
    return;
  }
  const OpScope scope("megatron::cross_entropy_statistics", {rows.logits, rows.labels, lse},
                      {.bytes = bytes_of(rows.logits)});
  const kernels::CrossEntropyStatistics arguments{kernel_rows(rows), lse.mutable_data_ptr(),
                                                  label_logit.mutable_data_ptr()};
  at::parallel_for(0, rows.logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::cross_entropy_kernels().statistics(arguments, begin, end);
  });
}

void cross_entropy_gradient(const LabelledLogits& rows, const at::Tensor& lse,
                            const at::Tensor& mask, const at::Tensor& scale, at::Tensor gradient) {
  if (rows.logits.numel() == 0) return;
  if (!rows.logits.is_cpu()) {
    const LabelColumns labels = columns_of(rows);
    at::Tensor p = rows.logits;
    p.sub_(lse.unsqueeze(1)).exp_();
    p.scatter_add_(1, labels.columns, labels.here.to(p.scalar_type()).neg().unsqueeze(1));
    p.mul_((mask.to(p.scalar_type()) * scale).unsqueeze(1));
    if (!p.is_same(gradient)) gradient.copy_(p);
    return;
  }
  MEGATRON_CHECK(gradient.stride(1) == 1 && mask.is_contiguous() &&
                     mask.scalar_type() == at::kFloat && lse.is_contiguous(),
                 "gradient of a loss");
  const OpScope scope("megatron::cross_entropy_gradient", {rows.logits, lse, gradient},
                      {.bytes = bytes_of(rows.logits) + bytes_of(gradient)});
  const kernels::CrossEntropyGradient arguments{
      .rows = kernel_rows(rows),
      .lse = lse.const_data_ptr(),
      .mask = mask.const_data_ptr<float>(),
      .scale = host_scalar(scale),
      .gradient = gradient.mutable_data_ptr(),
      .gradient_type = kernel_type(gradient.scalar_type()),
      .gradient_row_stride = gradient.stride(0)};
  at::parallel_for(0, rows.logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::cross_entropy_kernels().gradient(arguments, begin, end);
  });
}

}  // namespace megatron
