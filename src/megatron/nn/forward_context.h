// State that all layers of a forward pass share: seed, positions, rotary tables and, in generation,
// the caches. Hooks observe the units of a model (embedding, each layer, final norm) and the ops
// inside them, for diagnosis and to gather weights on demand. A node is a named part of a layer.
// What is not mathematics hangs on it from outside: hooks, recomputation and offload.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/nn/module.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/offloaded_activations.h"
#include "megatron/ops/recompute.h"
#include "megatron/ops/row_pieces.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// Interface of an observer of forward and backward passes. The defaults do nothing.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  /// Called before a unit's forward, when its weights are about to be read.
  virtual void before_forward(const Module& /*unit*/) {}
  /// Called after a unit's forward with its output.
  virtual void after_forward(const Module& /*unit*/, const at::Tensor& /*output*/) {}
  /// Called after an op of a unit, in the order of the forward pass. `op` is a module's path,
  /// optionally followed by an op name ("decoder.layers.0.self_attention.core_attention").
  /// Dimension 1 of the output is the batch.
  virtual void after_op(const std::string& /*op*/, const at::Tensor& /*output*/) {}
  /// Returns whether after_op() is to be called. Ops that are fused otherwise then run one by one,
  /// which needs more memory.
  virtual bool observes_ops() const { return true; }
  /// Returns whether the hooks below are to be called. It must not change between the forward and
  /// the backward of a microbatch.
  virtual bool observes_backward() const { return false; }
  /// Called before a unit's backward, when its weights are about to be read again, with the
  /// gradient of its output.
  virtual void before_backward(const Module& /*unit*/, const at::Tensor& /*gradient*/) {}
  /// Called when a unit's backward is done: it reads the unit's weights no more. Their gradients
  /// have their contributions, unless a schedule defers these to a W step of its own
  /// (ParamStore::Deferral). Backward of a unit whose input needs no gradient (the embedding)
  /// counts as done when the backward pass ends.
  virtual void after_backward(const Module& /*unit*/) {}
  /// Returns the hooks of a forward pass that backward runs again. By default they do nothing, but
  /// observe ops as these do: the second run must consist of the same ops.
  virtual UnitHooks& in_second_run();
};

/// Returns `input`, such that hooks.after_backward(unit) is called when its gradient is complete.
at::Tensor with_after_backward(UnitHooks& hooks, const Module& unit, const at::Tensor& input);
/// Returns `output`, such that hooks.before_backward(unit) is called when its gradient is complete.
/// With `ends_pass`, hooks.after_backward(unit) follows at the end of the backward pass.
at::Tensor with_before_backward(UnitHooks& hooks, const Module& unit, const at::Tensor& output,
                                bool ends_pass);

/// Runs `forward(input)` of a unit between its hooks, with the unit as the thread's current layer.
/// `hooks` may be null. `input` is undefined for a unit whose input has no gradient.
template <class Forward>
at::Tensor run_unit(UnitHooks* hooks, const Module& unit, const at::Tensor& input,
                    Forward forward) {
  const LayerScope scope(unit.layer_name());
  if (hooks == nullptr) return forward(input);
  const bool observes_backward = hooks->observes_backward();
  const bool has_gradient = input.defined() && input.requires_grad();
  hooks->before_forward(unit);
  at::Tensor output =
      forward(observes_backward && has_gradient ? with_after_backward(*hooks, unit, input) : input);
  hooks->after_forward(unit, output);
  return observes_backward ? with_before_backward(*hooks, unit, output, !has_gradient) : output;
}

/// Tensors that layers publish for later layers, by key.
using Published = std::map<std::string, at::Tensor, std::less<>>;

/// The arguments of a forward pass that do not belong to one layer.
struct ForwardContext {
  std::uint64_t seed = 0;
  bool training = false;       ///< turns dropout on
  at::Tensor sample_ordinals;  ///< int64, one for each sample [b] or packed sequence
  /// int64 [b, s]: the token ids of the rows that the ranks of tp share. With sequence parallelism
  /// hidden row i has column first_row + i.
  at::Tensor tokens;
  at::Tensor document_ids;  ///< int32 [b, positions of the sequence] or undefined
  RowPieces documents;      ///< document_pieces() of these in a model with recurrent layers
  /// int32 [b, positions of the encoder] or undefined: those of the keys of cross attention.
  at::Tensor encoder_document_ids;
  at::Tensor rotary_cos, rotary_sin;  ///< [s or s·b, rotary_dim / 2] or undefined
  /// The same for RotaryKind::local; undefined if no layer has it.
  at::Tensor local_cos, local_sin;
  /// [heads of this rank, 2s − 1] or undefined: AttentionOptions::distance_bias of self-attention.
  at::Tensor relative_bias;
  /// [s, 1 or b, 1, 1]: what multiplies queries of layers without rotary positions, or of all, or
  /// undefined.
  at::Tensor query_factor;
  /// Generation: what the layers remember of each sequence. Null: sequences begin with this pass.
  const Caches* caches = nullptr;
  /// The texts in the encoder's rows, of sequences whose caches have none yet; null: there are
  /// none.
  std::shared_ptr<const SequencePlacement> encoder_placement = nullptr;
  /// The rows that each rank of `cp` holds, and the sequences packed in them. Null when this rank
  /// holds all positions of unpacked sequences without caches.
  std::shared_ptr<const SequencePlacement> placement;
  const Axis* cp = nullptr;        ///< the ranks that share the rows; set together with placement
  bool sequence_parallel = false;  ///< hidden rows are this rank's slice of the microbatch's rows
  std::int64_t first_row = 0;      ///< index of this rank's first hidden row in the microbatch
  RowPositions row_positions;      ///< of this rank's hidden rows
  /// int32 [num_layers, tokens, topk], which receives the choices of the routers of this rank for
  /// the tokens that it routes; undefined: they are not wanted.
  at::Tensor routed_experts;
  std::vector<std::int64_t> lengths;  ///< Microbatch::lengths, for experts; empty: no padding
  UnitHooks* hooks = nullptr;         ///< called around every unit; may be null
  /// The scalar gradient that the auxiliary losses of this microbatch receive; undefined outside
  /// training.
  at::Tensor aux_loss_gradient;
  /// Set inside a part of the model that backward runs again (ops/recompute.h).
  ForwardReplay* replay = nullptr;
  OffloadPass* offload = nullptr;       ///< where layers offload activations; null: they keep them
  const LayerPolicy* policy = nullptr;  ///< of the nodes of this layer; null: they keep all
  OffloadedLayer* offloaded_layer = nullptr;  ///< hooks of the nodes that it offloads, or null
  /// Recompute every layer of this microbatch as a whole.
  bool recomputes_all_layers = false;
  /// What layers have published in this pass; null if none do.
  std::shared_ptr<Published> published_tensors = nullptr;

  /// Publishes a tensor, or returns one that an earlier layer has published. The spec of the block
  /// must name the key (BlockSpec).
  void publish(std::string_view key, const at::Tensor& tensor) const;
  const at::Tensor& published(std::string_view key) const;
  /// Returns `value`, as the first run saw it (ForwardReplay::keep).
  at::Tensor first_seen(const at::Tensor& value) const {
    return replay != nullptr ? replay->keep(value) : value;
  }
  /// Returns whether this pass runs again what had its effects in the first run.
  bool is_second_run() const { return replay != nullptr && replay->is_second_run(); }
  /// Returns the most positions of a sequence, with those in its cache.
  std::int64_t num_positions() const;
  /// Returns the dropout site `path.name`, which is inactive outside training.
  DropoutSite dropout(std::string_view path, std::string_view name, double probability) const;
};

/// Returns whether `hooks`, which may be null, see the ops of a unit.
inline bool observes_ops(const UnitHooks* hooks) {
  return hooks != nullptr && hooks->observes_ops();
}

/// Passes the output of op `name` of `module` to the hooks; an empty name means the module itself.
/// `hooks` may be null.
inline void notify_op(UnitHooks* hooks, const Module& module, std::string_view name,
                      const at::Tensor& output) {
  if (!observes_ops(hooks)) return;
  const std::string separator = module.path().empty() || name.empty() ? "" : ".";
  hooks->after_op(module.path() + separator + std::string(name), output);
}

/// What hooks and policies know a node by.
struct Node {
  const Module& module;
  std::string_view op = {};  ///< name of its output below the module; empty: the module itself
  LayerNode node = LayerNode::none;
};

/// Passes the output of op `name` of `module` to the hooks (UnitHooks::after_op).
inline void observe(const ForwardContext& context, const Module& module, std::string_view name,
                    const at::Tensor& output) {
  notify_op(context.hooks, module, name, output);
}

/// Names the node that this thread computes until destruction.
class NodeScope {
 public:
  explicit NodeScope(LayerNode node) : outer_(current_) {
    if (node != LayerNode::none) current_ = node;
  }
  NodeScope(const NodeScope&) = delete;
  NodeScope& operator=(const NodeScope&) = delete;
  ~NodeScope() { current_ = outer_; }
  /// Returns the innermost node that has a name; `none` outside of all.
  static LayerNode current() { return current_; }

 private:
  static inline thread_local LayerNode current_ = LayerNode::none;
  LayerNode outer_;
};

/// Returns f(), and offloads what it keeps if the layer's policy says so.
template <class Function>
auto run_node(const ForwardContext& context, LayerNode node, Function f) {
  const NodeScope named(node);
  if (context.policy == nullptr) return f();
  const bool offloads = context.policy->offloaded.contains(node);
  const SavedTensorHooksScope scope(offloads ? context.offloaded_layer : nullptr);
  return f();
}

/// Does the same, and passes the output to the hooks.
template <class Function>
at::Tensor run_node(const ForwardContext& context, const Node& node, Function f) {
  at::Tensor output = run_node(context, node.node, std::move(f));
  observe(context, node.module, node.op, output);
  return output;
}

/// Returns forward(inputs, context) and keeps the inputs only (recomputed()). They are a tensor or
/// a list, and so is the result. In the second run, the hooks of `context` do not see the ops
/// again. Everything that `forward` captures must outlive backward.
template <class Inputs, class Forward>
Inputs recomputed_block(const Inputs& inputs, const ForwardContext& context, Forward forward,
                        const RecomputeOptions& options = {}) {
  return recomputed(
      inputs,
      [context, forward = std::move(forward)](const Inputs& x, ForwardReplay& replay) {
        ForwardContext own = context;
        own.replay = &replay;
        // What is recomputed is not offloaded.
        own.offload = nullptr;
        own.policy = nullptr;
        if (replay.is_second_run() && own.hooks != nullptr) own.hooks = &own.hooks->in_second_run();
        return forward(x, own);
      },
      options);
}

/// Returns forward(input, context) of a node that the layer's policy may recompute or offload.
template <class Forward>
at::Tensor run_node(const ForwardContext& context, LayerNode node, const at::Tensor& input,
                    Forward forward) {
  return run_node(context, node, [&] {
    return context.policy != nullptr && context.policy->recomputed.contains(node)
               ? recomputed_block(input, context, std::move(forward))
               : forward(input, context);
  });
}

}  // namespace megatron
