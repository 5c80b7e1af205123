#include "megatron/ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/logsumexp.h>

#include <limits>

#include "kernels/cpu/cross_entropy.h"
#include "megatron/base/error.h"
#include "megatron/ops/host_scalar.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

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

kernels::CrossEntropyRows kernel_rows(const LabelledLogits& rows) {
  const at::Tensor& logits = rows.logits;
  MEGATRON_CHECK(logits.stride(1) == 1 && rows.labels.is_contiguous() &&
                     rows.labels.scalar_type() == at::kLong,
                 "logits of stride ", logits.stride(1), " and ", rows.labels.scalar_type(),
                 " labels");
  return {.logits = logits.const_data_ptr(),
          .type = kernel_type(logits.scalar_type()),
          .row_stride = logits.stride(0),
          .columns = logits.size(1),
          .first_column = rows.first,
          .labels = rows.labels.const_data_ptr<std::int64_t>()};
}

void statistics_on_cpu(const LabelledLogits& rows, const at::Tensor& lse,
                       const at::Tensor& label_logit) {
  const kernels::CrossEntropyStatistics arguments{kernel_rows(rows), lse.mutable_data_ptr(),
                                                  label_logit.mutable_data_ptr()};
  parallel_kernel(kernels::cross_entropy_kernels().statistics, arguments, rows.logits.size(0),
                  rows.logits.size(1));
}

void statistics_by_aten(const LabelledLogits& rows, const at::Tensor& lse,
                        const at::Tensor& label_logit) {
  const auto& [logits, labels, first, vocab_size] = rows;
  const LabelColumns columns = columns_of(rows);
  lse.copy_(at::logsumexp(logits, {1}));
  const at::Tensor outside = (labels < 0).logical_or(labels >= vocab_size);
  label_logit.copy_(logits.gather(1, columns.columns)
                        .squeeze(1)
                        .masked_fill(columns.here.logical_not(), 0)
                        .masked_fill(outside, std::numeric_limits<double>::quiet_NaN()));
}

void gradient_on_cpu(const LabelledLogits& rows, const at::Tensor& lse, const at::Tensor& mask,
                     const at::Tensor& scale, const at::Tensor& gradient) {
  MEGATRON_CHECK(gradient.stride(1) == 1 && mask.is_contiguous() && lse.is_contiguous(),
                 "gradient of stride ", gradient.stride(1));
  const at::Tensor own_mask = mask.to(rows.logits.scalar_type());
  const kernels::CrossEntropyGradient arguments{
      .rows = kernel_rows(rows),
      .lse = lse.const_data_ptr(),
      .mask = own_mask.const_data_ptr(),
      .scale = host_scalar(scale),
      .gradient = gradient.mutable_data_ptr(),
      .gradient_type = kernel_type(gradient.scalar_type()),
      .gradient_row_stride = gradient.stride(0)};
  parallel_kernel(kernels::cross_entropy_kernels().gradient, arguments, rows.logits.size(0),
                  rows.logits.size(1));
}

void gradient_by_aten(const LabelledLogits& rows, const at::Tensor& lse, const at::Tensor& mask,
                      const at::Tensor& scale, const at::Tensor& gradient) {
  const LabelColumns columns = columns_of(rows);
  const at::Tensor& p = rows.logits;
  p.sub_(lse.unsqueeze(1)).exp_();
  p.scatter_add_(1, columns.columns, columns.here.to(p.scalar_type()).neg().unsqueeze(1));
  p.mul_((mask.to(p.scalar_type()) * scale).unsqueeze(1));
  if (!p.is_same(gradient)) gradient.copy_(p);
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<statistics_on_cpu>(
      library,
      "cross_entropy_statistics(Tensor? logits, Tensor? labels, int first, int vocab_size, "
      "Tensor(a!) lse, Tensor(b!) label_logit) -> ()");
  register_kernel<statistics_by_aten>(library, "cross_entropy_statistics", kAnyDevice);
  define_operator<gradient_on_cpu>(
      library,
      "cross_entropy_gradient(Tensor(a!)? logits, Tensor? labels, int first, int vocab_size, "
      "Tensor lse, Tensor mask, Tensor scale, Tensor(b!) gradient) -> ()");
  register_kernel<gradient_by_aten>(library, "cross_entropy_gradient", kAnyDevice);
}

}  // namespace

void cross_entropy_statistics(const LabelledLogits& rows, at::Tensor lse, at::Tensor label_logit) {
  static const Operator<statistics_on_cpu> op("megatron::cross_entropy_statistics");
  if (rows.logits.size(1) == 0) {
    lse.fill_(-std::numeric_limits<double>::infinity());
    label_logit.zero_();
    return;
  }
  op(rows, lse, label_logit);
}

void cross_entropy_gradient(const LabelledLogits& rows, const at::Tensor& lse,
                            const at::Tensor& mask, const at::Tensor& scale, at::Tensor gradient) {
  static const Operator<gradient_on_cpu> op("megatron::cross_entropy_gradient");
  if (rows.logits.numel() == 0) return;
  op(rows, lse, mask, scale, gradient);
}

}  // namespace megatron
