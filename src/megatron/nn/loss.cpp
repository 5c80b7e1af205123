// t tokens, h hidden channels, v this rank's part of the true vocabulary. Padded rows of the weight
// are never read, and a rank may hold nothing else.
//
// Tokens are processed in blocks whose logit gradients fit a fixed memory budget, and blocks in
// chunks whose logits fit the last-level cache. The weight's gradient is accumulated block by
// block. Every path through this file uses the same blocks, so all paths give the same bits.
#include "megatron/nn/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/cross_entropy.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/host_scalar.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
// Logits of a chunk. With smaller chunks, packing the weights would dominate the GEMM.
constexpr std::int64_t kChunkBytes = 64 * kMiB;
constexpr std::int64_t kBlockBytes = 64 * kMiB;  // logit gradients of a block
// Logit gradients kept until the weight gradient is requested; others are recomputed.
constexpr std::int64_t kKeptBytes = 192 * kMiB;

struct Tokens {
  std::int64_t begin, count;
  at::Tensor of(const at::Tensor& x) const { return x.narrow(0, begin, count); }
};

/// Returns the part size that divides `count` tokens into the fewest equal parts of at most `most`.
std::int64_t part_size(std::int64_t count, std::int64_t most) {
  const std::int64_t parts = std::max<std::int64_t>(1, (count + most - 1) / most);
  return (count + parts - 1) / parts;
}

/// Calls body(part) for parts of `size` tokens and for the remainder.
template <class Body>
void for_parts(Tokens all, std::int64_t size, const Body& body) {
  const std::int64_t end = all.begin + all.count;
  for (std::int64_t begin = all.begin; begin < end; begin += size)
    body(Tokens{begin, std::min(size, end - begin)});
}

/// Projection and loss of all tokens of one call.
class ProjectedLoss {
 public:
  ProjectedLoss(at::Tensor hidden, at::Tensor labels, at::Tensor mask, const OutputWeights& weights)
      : hidden_(std::move(hidden)),
        labels_(labels.contiguous()),
        mask_(mask.contiguous()),
        weight_(&weights.weight),
        bias_(weights.bias),
        softcap_(weights.softcap) {
    const std::int64_t local = weight_->local_shape()[0];
    first_ = weight_->axis().rank * local;
    v_ = std::clamp<std::int64_t>(weight_->sharding().global_shape[0] - first_, 0, local);
    blocks_ = logit_blocks(hidden_.size(0), local, hidden_.scalar_type());
    lse_ = at::empty({hidden_.size(0)}, hidden_.options().dtype(wide()));
    label_logit_ = at::empty_like(lse_);
  }

  bool is_trained() const { return weight_->is_trained(); }
  at::Tensor losses() const { return lse_ - label_logit_; }
  c10::ScalarType wide() const { return compute_type(hidden_.scalar_type()); }

  /// Computes the statistics that losses need.
  void measure() {
    at::Tensor logits = chunk_logits();
    for_parts(all(), blocks_.chunk_tokens,
              [&](Tokens chunk) { measure(chunk, project(chunk, logits)); });
  }

  /// Computes both gradients. The weight must be trained, and the accumulator must request its
  /// gradient immediately. With `measures`, also computes the statistics that losses need.
  at::Tensor propagate(const at::Tensor& scale, bool measures) {
    at::Tensor dhidden = empty_input_gradient(), dbias = empty_bias_gradient();
    weight_->contribute([&](at::Tensor& grad, bool fresh) {
      at::Tensor dw = true_rows(grad, fresh),
                 dlogits = at::empty({blocks_.block_tokens, v_}, hidden_.options());
      for_parts(all(), blocks_.block_tokens, [&](Tokens block) {
        const at::Tensor rows = dlogits.narrow(0, 0, block.count);
        logit_gradient(block, scale, measures, rows);
        input_gradient(block, rows, dhidden);
        add_bias_gradient(rows, dbias);
        weight_gradient(block, rows, dw, /*accumulate=*/!fresh || block.begin > 0);
      });
    });
    contribute_bias(dbias);
    return dhidden;
  }

  /// Computes the input's gradient, and keeps the logit gradients of the first blocks for
  /// contribute().
  struct Kept {
    at::Tensor dhidden;
    std::vector<at::Tensor> dlogits = {};
    at::Tensor dbias = {};
  };
  Kept propagate_to_input(const at::Tensor& scale, bool measures) {
    Kept kept{.dhidden = empty_input_gradient(), .dbias = empty_bias_gradient()};
    std::int64_t budget = weight_->is_trained() ? kKeptBytes : 0;
    for_parts(all(), blocks_.block_tokens, [&](Tokens block) {
      const at::Tensor dlogits = at::empty({block.count, v_}, hidden_.options());
      logit_gradient(block, scale, measures, dlogits);
      input_gradient(block, dlogits, kept.dhidden);
      add_bias_gradient(dlogits, kept.dbias);
      budget -= static_cast<std::int64_t>(dlogits.nbytes());
      if (budget >= 0) kept.dlogits.push_back(dlogits);
    });
    return kept;
  }

  /// Contributes the weights' gradients, which the accumulator may request later.
  void contribute(std::vector<at::Tensor> kept, const at::Tensor& dbias,
                  const at::Tensor& scale) const {
    contribute_bias(dbias);
    weight_->contribute(
        [head = *this, kept = std::move(kept), scale](at::Tensor& grad, bool fresh) mutable {
          at::Tensor dw = head.true_rows(grad, fresh);
          std::size_t index = 0;
          for_parts(head.all(), head.blocks_.block_tokens, [&](Tokens block) {
            at::Tensor dlogits = index < kept.size()
                                     ? std::move(kept[index])
                                     : at::empty({block.count, head.v_}, head.hidden_.options());
            if (index++ >= kept.size())
              head.logit_gradient(block, scale, /*measures=*/false, dlogits);
            head.weight_gradient(block, dlogits, dw, /*accumulate=*/!fresh || block.begin > 0);
          });
        });
  }

  /// Returns the state that backward of the same head needs.
  const at::Tensor& lse() const { return lse_; }
  void set_lse(at::Tensor lse) { lse_ = std::move(lse); }

 private:
  Tokens all() const { return {0, hidden_.size(0)}; }
  at::Tensor w() const { return weight_->value().narrow(0, 0, v_); }
  at::Tensor chunk_logits() const {
    return at::empty({blocks_.chunk_tokens, v_}, hidden_.options().dtype(wide()));
  }
  at::Tensor empty_input_gradient() const {
    return v_ > 0 ? at::empty_like(hidden_) : at::zeros_like(hidden_);
  }
  /// Returns zeros for this rank's rows, padding included; undefined without a bias.
  at::Tensor empty_bias_gradient() const {
    return bias_ != nullptr ? at::zeros(bias_->local_shape(), lse_.options()) : at::Tensor();
  }

  /// Computes the logits of a chunk into the first rows of `into`.
  LabelledLogits project(Tokens chunk, const at::Tensor& into) const {
    at::Tensor logits = into.narrow(0, 0, chunk.count);
    if (v_ > 0) {
      GemmWeight w = weight_->gemm_weight();
      w.value = w.value.narrow(0, 0, v_);
      matmul_out(logits, chunk.of(hidden_), w);
    }
    if (bias_ != nullptr) logits.add_(bias_->value().narrow(0, 0, v_));
    if (softcap_ > 0) logits.div_(softcap_).tanh_().mul_(softcap_);
    return {logits, chunk.of(labels_), first_, weight_->sharding().global_shape[0]};
  }

  /// Combines log Σ exp and the label's logit of the ranks' parts of the vocabulary in one
  /// collective.
  void measure(Tokens chunk, const LabelledLogits& logits) {
    at::Tensor lse = chunk.of(lse_), label_logit = chunk.of(label_logit_);
    cross_entropy_statistics(logits, lse, label_logit);
    const Axis& axis = weight_->axis();
    if (axis.size == 1) return;
    const at::Tensor parts =
        all_gather(axis, at::stack({lse, label_logit}).unsqueeze(0), "cross_entropy");
    lse.copy_(at::logsumexp(parts.select(1, 0), {0}));
    label_logit.copy_(parts.select(1, 1).sum(0));
  }

  /// Computes d loss / d logits of a block.
  void logit_gradient(Tokens block, const at::Tensor& scale, bool measures,
                      const at::Tensor& dlogits) {
    const bool in_place = dlogits.scalar_type() == wide();
    const at::Tensor logits = in_place ? at::Tensor() : chunk_logits();
    for_parts(block, blocks_.chunk_tokens, [&](Tokens chunk) {
      const at::Tensor rows = dlogits.narrow(0, chunk.begin - block.begin, chunk.count);
      const LabelledLogits labelled = project(chunk, in_place ? rows : logits);
      if (measures) measure(chunk, labelled);
      at::Tensor slope;  // of the softcap, 1 − tanh²
      if (softcap_ > 0) slope = 1 - (labelled.logits / softcap_).square_();
      cross_entropy_gradient(labelled, chunk.of(lse_), chunk.of(mask_), scale, rows);
      if (slope.defined()) at::Tensor(rows).mul_(slope);
    });
  }

  void input_gradient(Tokens block, const at::Tensor& dlogits, const at::Tensor& dhidden) const {
    at::Tensor rows = block.of(dhidden);
    if (v_ > 0) matmul_out(rows, dlogits, w(), /*accumulate=*/false);
  }

  void weight_gradient(Tokens block, const at::Tensor& dlogits, at::Tensor& dw,
                       bool accumulate) const {
    if (v_ > 0) matmul_out(dw, dlogits.t(), block.of(hidden_), accumulate);
  }

  void add_bias_gradient(const at::Tensor& dlogits, const at::Tensor& dbias) const {
    if (bias_ != nullptr) dbias.narrow(0, 0, v_).add_(dlogits.sum(0, false, wide()));
  }
  void contribute_bias(const at::Tensor& dbias) const {
    if (bias_ != nullptr) bias_->contribute(dbias);
  }

  /// Returns this rank's true rows of the weight's gradient. The first contribution zeroes the
  /// padding.
  at::Tensor true_rows(at::Tensor& grad, bool fresh) const {
    if (fresh && grad.size(0) > v_) grad.narrow(0, v_, grad.size(0) - v_).zero_();
    return grad.narrow(0, 0, v_);
  }

  at::Tensor hidden_, labels_, mask_;
  Parameter *weight_, *bias_;
  double softcap_;
  std::int64_t first_ = 0, v_ = 0;
  LogitBlocks blocks_;
  at::Tensor lse_, label_logit_;  ///< [t]
};

/// The gradients that forward computed under an announced loss gradient.
struct Early {
  at::Tensor scale;
  ProjectedLoss::Kept kept;
  bool wrote = false;  ///< forward has contributed the weight's gradient
};

Early compute_early(ProjectedLoss& head, const LossGradient& loss_gradient, bool defers) {
  Early early{.scale = loss_gradient.value.to(head.wide()),
              .kept = {},
              .wrote = loss_gradient.accumulates_in_forward && !defers && head.is_trained()};
  early.kept = early.wrote ? ProjectedLoss::Kept{head.propagate(early.scale, /*measures=*/true)}
                           : head.propagate_to_input(early.scale, /*measures=*/true);
  return early;
}

/// Backward under an announced gradient, which must equal `scale`. Forward has computed the
/// gradient of the input; the weight's is contributed here unless forward did. `saved` is {hidden,
/// labels, mask, lse}.
at::Tensor announced_backward(const OutputWeights& weights, Early& early, const Tensors& saved,
                              const at::Tensor& scale) {
  MEGATRON_CHECK(early.kept.dhidden.defined(), "backward of a loss runs twice after one forward");
  // A NaN loss scale or mask is reported by the checks of losses and gradients, not here.
  MEGATRON_CHECK(!is_known_to_differ(scale, early.scale), "loss gradient is ", host_scalar(scale),
                 " in backward but was announced as ", host_scalar(early.scale), " in forward");
  if (early.wrote) return std::exchange(early.kept.dhidden, {});
  ProjectedLoss head(saved[0], saved[1], saved[2], weights);
  head.set_lse(saved[3]);
  ProjectedLoss::Kept kept = std::exchange(early.kept, {});
  head.contribute(std::move(kept.dlogits), kept.dbias, scale);
  return kept.dhidden;
}

/// Backward from the gradients of the sum and of the single losses; either may be undefined.
at::Tensor loss_backward(const OutputWeights& weights, const BackwardPass& pass) {
  const Parameter& weight = weights.weight;
  const at::Tensor &dsum = pass.gradients[0], &dlosses = pass.gradients[1];
  at::Tensor mask = pass.saved[2], scale = dsum;
  if (dlosses.defined()) {
    const auto wide = dlosses.scalar_type();
    mask = dsum.defined() ? dlosses + mask.to(wide) * dsum.to(wide) : dlosses;
    scale = at::ones({}, dlosses.options());
  }
  ProjectedLoss head(pass.saved[0], pass.saved[1], mask, weights);
  head.set_lse(pass.saved[3]);
  if (weight.is_trained() && !weight.defers_gradient())
    return head.propagate(scale, /*measures=*/false);
  ProjectedLoss::Kept kept = head.propagate_to_input(scale, /*measures=*/false);
  head.contribute(std::move(kept.dlogits), kept.dbias, scale);
  return kept.dhidden;
}

void check_labels(const at::Tensor& labels, std::int64_t vocabulary) {
  const auto [least, largest] = host_range(labels);
  MEGATRON_CHECK(least >= 0 && largest < vocabulary, "labels from ", least, " to ", largest,
                 " of a vocabulary of ", vocabulary);
}

}  // namespace

LogitBlocks logit_blocks(std::int64_t tokens, std::int64_t local, c10::ScalarType type) {
  const auto tokens_in = [local](std::int64_t bytes, c10::ScalarType of) {
    return std::max<std::int64_t>(
        16, bytes / (local * static_cast<std::int64_t>(c10::elementSize(of))));
  };
  // The block size is a power of two, because GEMMs also accumulate tokens in such blocks and the
  // weight's gradient must not depend on ours.
  const std::int64_t block =
      std::min(static_cast<std::int64_t>(
                   std::bit_floor(static_cast<std::uint64_t>(tokens_in(kBlockBytes, type)))),
               tokens);
  // The chunk size is equal on all ranks, because each chunk is a collective.
  return {.block_tokens = block,
          .chunk_tokens = part_size(block, tokens_in(kChunkBytes, compute_type(type)))};
}

TokenLoss linear_cross_entropy(const at::Tensor& hidden, const OutputWeights& weights,
                               const at::Tensor& labels, const at::Tensor& mask,
                               const LossGradient& loss_gradient) {
  const Parameter& weight = weights.weight;
  MEGATRON_CHECK(
      hidden.dim() == 2 && labels.numel() == hidden.size(0) && mask.numel() == hidden.size(0),
      "hidden ", hidden.sizes(), " with labels ", labels.sizes(), " and mask ", mask.sizes());
  check_labels(labels, weight.sharding().global_shape[0]);
  const bool is_announced = loss_gradient.value.defined() && at::GradMode::is_enabled();
  const DifferentiableOp op{.name = "LinearCrossEntropyBackward",
                            .trains_parameters = true,
                            .allows_undefined_gradients = true};
  Recording recording(op, {hidden});
  ProjectedLoss head(hidden, labels, mask, weights);
  auto early = std::make_shared<Early>();
  if (is_announced) {
    *early = compute_early(head, loss_gradient, weight.defers_gradient());
  } else {
    head.measure();
  }
  const at::Tensor losses = head.losses(), sum = (losses.to(at::kDouble) * mask.to(at::kDouble))
                                                     .sum()
                                                     .to(losses.scalar_type());
  const Tensors results = recording.finish(
      {.outputs = {sum, losses},
       .saved = early->wrote ? Tensors{} : Tensors{hidden, labels, mask, head.lse()},
       .backward = [weights, early, is_announced](BackwardPass& pass) -> Tensors {
         return {is_announced ? announced_backward(weights, *early, pass.saved, pass.gradients[0])
                              : loss_backward(weights, pass)};
       },
       .num_differentiable = is_announced ? 1u : 2u});
  return {results[0], results[1]};
}

}  // namespace megatron
