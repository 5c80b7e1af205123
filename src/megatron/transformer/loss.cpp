// t tokens, h hidden channels, v this rank's part of the true vocabulary (padded rows of the weight are never read; a rank may hold nothing else).
#include "megatron/transformer/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/parallel/collectives.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/matrix_product.h"
#include "megatron/transformer/row_operations.h"

namespace megatron {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 23;  // logits of one chunk: 32 MiB in fp32
constexpr std::int64_t kKeptElements = std::int64_t{6} << 23;   // logits kept for backward: at most 192 MiB in fp32

std::int64_t chunk_rows(std::int64_t v) { return std::max<std::int64_t>(16, kChunkElements / std::max<std::int64_t>(v, 1)); }

/// Rows of the global vocabulary on this rank.
struct VocabularyPart {
  std::int64_t first, count;
};

VocabularyPart part_of(const Parameter& weight) {
  const std::int64_t local = weight.value().size(0), first = weight.axis().rank * local;
  return {first, std::clamp<std::int64_t>(weight.sharding().global_shape[0] - first, 0, local)};
}

/// The column of each label among this rank's logits, and whether it is there (undefined on one rank: it is).
struct LabelColumns {
  at::Tensor columns, here;
  LabelColumns narrow(std::int64_t begin, std::int64_t count) const {
    return {columns.narrow(0, begin, count), here.defined() ? here.narrow(0, begin, count) : here};
  }
};

LabelColumns columns_of(const at::Tensor& labels, const Parameter& weight) {
  if (weight.axis().size == 1) return {labels, at::Tensor()};
  const VocabularyPart part = part_of(weight);
  const at::Tensor here = (labels >= part.first).logical_and(labels < part.first + part.count);
  return {(labels - part.first).masked_fill(here.logical_not(), 0), here};
}

/// The label's logit, 0 where another rank has it.
at::Tensor label_logits(const at::Tensor& logits, const LabelColumns& labels) {
  const at::Tensor found = logits.gather(1, labels.columns.unsqueeze(1)).squeeze(1);
  return labels.here.defined() ? found.masked_fill(labels.here.logical_not(), 0) : found;
}

/// Turns logits into d loss / d logits in place: mask·(softmax − one-hot).
void to_gradient_(at::Tensor& logits, const at::Tensor& lse, const LabelColumns& labels, const at::Tensor& mask) {
  logits.sub_(lse.unsqueeze(1)).exp_();
  const at::Tensor one = labels.here.defined() ? labels.here.to(lse.scalar_type()) : at::ones_like(lse);
  logits.scatter_add_(1, labels.columns.unsqueeze(1), one.neg().unsqueeze(1));
  logits.mul_(mask.to(logits.scalar_type()).unsqueeze(1));
}

/// log Σ exp and label's logit of the whole vocabulary from those of the ranks' parts, in place and in one collective.
void combine_(at::Tensor& lse, at::Tensor& label_logit, const Axis& axis) {
  if (axis.size == 1) return;
  const at::Tensor all = all_gather(axis, at::stack({lse, label_logit}).unsqueeze(0), "cross_entropy");
  lse = at::logsumexp(all.select(1, 0), {0});
  label_logit = all.select(1, 1).sum(0);
}

/// What backward knows of all tokens; `logits` are those that forward kept, of the first chunks.
struct Backward {
  at::Tensor hidden, lse, mask, scale;
  LabelColumns labels;
  std::vector<at::Tensor> logits;
  Parameter* weight;

  at::Tensor w() const { return weight->value().narrow(0, 0, part_of(*weight).count); }
  bool scales_last() const { return lse.scalar_type() == hidden.scalar_type(); }

  /// d loss / d logits of a chunk, whose logits are computed again where they were not kept. To 16 bits it is rounded after scaling: a loss scale
  /// must act before. Else the scale is left to the products.
  at::Tensor logit_gradient(std::size_t index, std::int64_t begin, std::int64_t count) {
    at::Tensor gradient =
        index < logits.size() ? std::move(logits[index]) : matrix_product(hidden.narrow(0, begin, count), w().t(), lse.scalar_type());
    to_gradient_(gradient, lse.narrow(0, begin, count), labels.narrow(begin, count), mask.narrow(0, begin, count));
    return scales_last() ? gradient : gradient.mul_(scale).to(hidden.scalar_type());
  }
  void input_gradient(const at::Tensor& dlogits, at::Tensor dhidden) const {
    if (!scales_last()) return matrix_product_into(dhidden, dlogits, w(), /*accumulate=*/false);
    at::mm_out(dhidden, dlogits, w());
    dhidden.mul_(scale);
  }
  void weight_gradient(const at::Tensor& dlogits, std::int64_t begin, at::Tensor dw, bool accumulate) const {
    const at::Tensor chunk = hidden.narrow(0, begin, dlogits.size(0));
    if (!scales_last()) return matrix_product_into(dw, dlogits.t(), chunk, accumulate);
    at::addmm_out(dw, dw, dlogits.t(), chunk * scale, /*beta=*/accumulate ? 1 : 0);
  }
  /// Calls body(index, begin, count) for every chunk.
  template <class Body>
  void for_chunks(const Body& body) const {
    const std::int64_t t = hidden.size(0), v = w().size(0), rows = chunk_rows(v);
    std::size_t index = 0;
    for (std::int64_t begin = 0; begin < t && v > 0; begin += rows) body(index++, begin, std::min(rows, t - begin));
  }
  /// This rank's true rows of the weight's gradient; padding is zeroed the first time.
  at::Tensor true_rows(at::Tensor& grad, bool fresh) const {
    const std::int64_t v = w().size(0);
    if (fresh && grad.size(0) > v) grad.narrow(0, v, grad.size(0) - v).zero_();
    return grad.narrow(0, 0, v);
  }
};

/// Both gradients, chunk by chunk.
void propagate(Backward& all, at::Tensor& dhidden) {
  all.weight->contribute([&](at::Tensor& grad, bool fresh) {
    at::Tensor dw = all.true_rows(grad, fresh);
    all.for_chunks([&](std::size_t index, std::int64_t begin, std::int64_t count) {
      const at::Tensor dlogits = all.logit_gradient(index, begin, count);
      all.input_gradient(dlogits, dhidden.narrow(0, begin, count));
      all.weight_gradient(dlogits, begin, dw, /*accumulate=*/!fresh || begin > 0);
    });
  });
}

/// The input's gradient now, the weight's when the sink asks: the logits' gradients wait for it where the logits were kept, and are computed again
/// elsewhere.
void propagate_input_first(Backward all, at::Tensor& dhidden) {
  std::vector<at::Tensor> kept(all.logits.size());
  all.for_chunks([&](std::size_t index, std::int64_t begin, std::int64_t count) {
    const at::Tensor dlogits = all.logit_gradient(index, begin, count);
    all.input_gradient(dlogits, dhidden.narrow(0, begin, count));
    if (index < kept.size()) kept[index] = dlogits;
  });
  all.logits.clear();
  all.weight->contribute([all = std::move(all), kept = std::move(kept)](at::Tensor& grad, bool fresh) mutable {
    at::Tensor dw = all.true_rows(grad, fresh);
    all.for_chunks([&](std::size_t index, std::int64_t begin, std::int64_t count) {
      const at::Tensor dlogits = index < kept.size() ? kept[index] : all.logit_gradient(index, begin, count);
      all.weight_gradient(dlogits, begin, dw, /*accumulate=*/!fresh || begin > 0);
    });
  });
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  struct Kept : torch::CustomClassHolder {
    std::vector<at::Tensor> logits;  ///< of the first chunks, as far as the budget goes
  };

  static variable_list forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& /*anchor*/, Parameter* weight,
                               const at::Tensor& labels, const at::Tensor& mask, bool keep) {
    const at::Tensor w = weight->value().narrow(0, 0, part_of(*weight).count);
    const std::int64_t t = hidden.size(0), v = w.size(0), rows = chunk_rows(v);
    const LabelColumns columns = columns_of(labels, *weight);
    const c10::ScalarType wide = compute_type(hidden.scalar_type());
    at::Tensor lse = at::full({t}, -std::numeric_limits<double>::infinity(), hidden.options().dtype(wide)), label_logit = at::zeros_like(lse);
    auto kept = c10::make_intrusive<Kept>();
    std::int64_t budget = keep ? kKeptElements : 0;
    for (std::int64_t begin = 0; begin < t && v > 0; begin += rows) {
      const std::int64_t count = std::min(rows, t - begin);
      const at::Tensor logits = matrix_product(hidden.narrow(0, begin, count), w.t(), wide);
      lse.narrow(0, begin, count).copy_(at::logsumexp(logits, {1}));
      label_logit.narrow(0, begin, count).copy_(label_logits(logits, columns.narrow(begin, count)));
      budget -= logits.numel();
      if (budget >= 0) kept->logits.push_back(logits);
    }
    combine_(lse, label_logit, weight->axis());
    const at::Tensor losses = lse - label_logit;
    context->save_for_backward({hidden, labels, mask, lse});
    save_pointer(context, "weight", weight);
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    const at::Tensor sum = (losses.to(at::kDouble) * mask.to(at::kDouble)).sum().to(losses.scalar_type());
    context->mark_non_differentiable({losses});
    return {sum, losses};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* weight = load_pointer<Parameter>(context, "weight");
    const auto holder = context->saved_data["kept"].toCapsule();
    Backward all{.hidden = saved[0],
                 .lse = saved[3],
                 .mask = saved[2],
                 .scale = gradients[0],
                 .labels = columns_of(saved[1], *weight),
                 .logits = std::exchange(static_cast<Kept&>(*holder).logits, {}),
                 .weight = weight};
    at::Tensor dhidden = all.w().size(0) > 0 ? at::empty_like(all.hidden) : at::zeros_like(all.hidden);
    if (weight->defers_gradient()) {
      propagate_input_first(std::move(all), dhidden);
    } else {
      propagate(all, dhidden);
    }
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
