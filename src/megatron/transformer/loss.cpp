// t tokens, h hidden channels, v true vocabulary (padded rows of the weight are never read).
#include "megatron/transformer/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/matrix_product.h"
#include "megatron/transformer/row_operations.h"

namespace megatron {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 23;  // logits of one chunk: 32 MiB in fp32
constexpr std::int64_t kKeptElements = std::int64_t{6} << 23;   // logits kept for backward: at most 192 MiB in fp32

std::int64_t chunk_rows(std::int64_t v) { return std::max<std::int64_t>(16, kChunkElements / v); }

at::Tensor true_rows(const Parameter& weight, const at::Tensor& tensor) { return tensor.narrow(0, 0, weight.sharding().global_shape[0]); }

/// Turns logits into d loss / d logits in place: mask·(softmax − one-hot).
void to_gradient_(at::Tensor& logits, const at::Tensor& lse, const at::Tensor& labels, const at::Tensor& mask) {
  logits.sub_(lse.unsqueeze(1)).exp_();
  const at::Tensor column = labels.unsqueeze(1);
  logits.scatter_add_(1, column, at::full_like(lse, -1).unsqueeze(1));
  logits.mul_(mask.to(logits.scalar_type()).unsqueeze(1));
}

/// d loss / d hidden and d loss / d weight of a chunk. To 16 bits, the gradient is rounded after scaling: a loss scale must act before.
void propagate(at::Tensor& dlogits, const at::Tensor& scale, const at::Tensor& hidden, const at::Tensor& w, at::Tensor& dhidden, at::Tensor& dw,
               bool accumulate) {
  if (dlogits.scalar_type() != hidden.scalar_type()) {
    const at::Tensor rounded = dlogits.mul_(scale).to(hidden.scalar_type());
    matrix_product_into(dhidden, rounded, w, /*accumulate=*/false);
    matrix_product_into(dw, rounded.t(), hidden, accumulate);
    return;
  }
  at::mm_out(dhidden, dlogits, w);
  dhidden.mul_(scale);
  at::addmm_out(dw, dw, dlogits.t(), hidden * scale, /*beta=*/accumulate ? 1 : 0);
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  struct Kept : torch::CustomClassHolder {
    std::vector<at::Tensor> gradients;  ///< of the first chunks, as far as the budget goes
  };

  static variable_list forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& /*anchor*/, Parameter* weight,
                               const at::Tensor& labels, const at::Tensor& mask, bool keep) {
    const at::Tensor w = true_rows(*weight, weight->value());
    const std::int64_t t = hidden.size(0), v = w.size(0), rows = chunk_rows(v);
    const c10::ScalarType wide = compute_type(hidden.scalar_type());
    at::Tensor lse = at::empty({t}, hidden.options().dtype(wide)), losses = at::empty_like(lse);
    auto kept = c10::make_intrusive<Kept>();
    std::int64_t budget = keep ? kKeptElements : 0;
    for (std::int64_t begin = 0; begin < t; begin += rows) {
      const std::int64_t count = std::min(rows, t - begin);
      const at::Tensor chunk_labels = labels.narrow(0, begin, count);
      at::Tensor logits = matrix_product(hidden.narrow(0, begin, count), w.t(), wide);
      const at::Tensor chunk_lse = at::logsumexp(logits, {1});
      lse.narrow(0, begin, count).copy_(chunk_lse);
      losses.narrow(0, begin, count).copy_(chunk_lse - logits.gather(1, chunk_labels.unsqueeze(1)).squeeze(1));
      budget -= logits.numel();
      if (budget >= 0) {
        to_gradient_(logits, chunk_lse, chunk_labels, mask.narrow(0, begin, count));
        kept->gradients.push_back(logits);
      }
    }
    context->save_for_backward({hidden, labels, mask, lse});
    save_pointer(context, "weight", weight);
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    const at::Tensor sum = (losses.to(at::kDouble) * mask.to(at::kDouble)).sum().to(losses.scalar_type());
    context->mark_non_differentiable({losses});
    return {sum, losses};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &hidden = saved[0], &labels = saved[1], &mask = saved[2], &lse = saved[3], &scale = gradients[0];
    auto* weight = load_pointer<Parameter>(context, "weight");
    const at::Tensor w = true_rows(*weight, weight->value());
    const auto holder = context->saved_data["kept"].toCapsule();
    auto& kept = static_cast<Kept&>(*holder).gradients;
    const std::int64_t t = hidden.size(0), rows = chunk_rows(w.size(0));
    at::Tensor dhidden = at::empty_like(hidden);
    weight->contribute([&](at::Tensor& grad, bool fresh) {
      if (fresh && grad.size(0) > w.size(0)) grad.narrow(0, w.size(0), grad.size(0) - w.size(0)).zero_();
      at::Tensor dw = true_rows(*weight, grad);
      for (std::int64_t begin = 0, index = 0; begin < t; begin += rows, ++index) {
        const std::int64_t count = std::min(rows, t - begin);
        const at::Tensor chunk = hidden.narrow(0, begin, count);
        at::Tensor dlogits;
        if (index < static_cast<std::int64_t>(kept.size())) {
          dlogits = std::move(kept[index]);
        } else {
          dlogits = matrix_product(chunk, w.t(), lse.scalar_type());
          to_gradient_(dlogits, lse.narrow(0, begin, count), labels.narrow(0, begin, count), mask.narrow(0, begin, count));
        }
        at::Tensor dchunk = dhidden.narrow(0, begin, count);
        propagate(dlogits, scale, chunk, w, dchunk, dw, /*accumulate=*/!fresh || begin > 0);
      }
    });
    kept.clear();
    return {dhidden, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

TokenLoss linear_cross_entropy(const at::Tensor& hidden, Parameter& weight, const at::Tensor& labels, const at::Tensor& mask) {
  MEGATRON_CHECK(hidden.dim() == 2 && labels.numel() == hidden.size(0) && mask.numel() == hidden.size(0), "loss shapes do not fit");
  const variable_list results = LinearCrossEntropy::apply(hidden, gradient_anchor(), &weight, labels, mask, at::GradMode::is_enabled());
  return {results[0], results[1].to(at::kFloat)};
}

}  // namespace megatron
