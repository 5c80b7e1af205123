// A node is a named part of a layer. What is not mathematics hangs on it from outside: hooks that
// see its output, and the recomputation and the offload of what it keeps.
#pragma once

#include <string_view>
#include <utility>

#include "megatron/config/activation_plan.h"
#include "megatron/nn/forward_context.h"

namespace megatron {

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
