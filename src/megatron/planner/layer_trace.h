// What a layer costs, found by running it on the meta device, where tensors have sizes but no data:
// its operators say what they save for backward, offload and send, so a layer needs no formula.
// What nodes of ATen save, in place of those of `Recording`, is not seen.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/models/model_family.h"

namespace megatron {

struct Rank;
struct Settings;

/// The costs of one layer and microbatch. The rows of experts are as many as the router sends if it
/// balances them; its auxiliary losses are not counted.
struct LayerTrace {
  struct Kept {
    LayerNode node = LayerNode::none;  ///< the innermost that has a name and reads the tensor first
    double bytes = 0;
  };
  /// What backward reads, in the order in which forward saves it. Views of one memory count once;
  /// weights, and what all layers of a pass share, do not.
  std::vector<Kept> kept = {};
  double offloaded = 0;  ///< bytes that are written to another memory
  /// Bytes that the rank sends in forward and backward, by axis. A ring all-gather or
  /// reduce-scatter over n ranks sends (n − 1)/n of the whole, an all-reduce twice that (Patarasuk
  /// and Yuan 2009).
  std::map<std::string, double, std::less<>> sent = {};

  double kept_bytes() const;
  /// Returns the bytes that some nodes keep.
  double kept_by(NodeSet nodes) const;
  /// Returns the bytes that are held when the backward of `node` begins: backward has released what
  /// was saved after it. All bytes of the layer if the node saves nothing or is not in it.
  double kept_until(LayerNode node) const;
  double sent_over(std::string_view axis) const;
};

/// Traces of the layers of one model. Each is made once for a kind of layer, the sizes of
/// parallelism and of the microbatch, and what a plan says. Not thread-safe.
class LayerTraces {
 public:
  /// `family` must outlive the traces.
  explicit LayerTraces(const ModelFamily& family) : family_(family) {}
  /// Returns the trace of layer `layer` (0-based) on `rank`, which may lack communicators
  /// (make_rank()), with what `plan`, a plan for the layers of the model, recomputes and offloads.
  /// The settings of all calls must have the same model, and freeze the same weights.
  const LayerTrace& of(const Settings& settings, const Rank& rank, std::int64_t layer,
                       const ActivationPlan& plan = {});
  const ModelFamily& family() const { return family_; }

 private:
  struct Key {
    LayerKind kind;
    LayerPolicy policy;
    std::vector<std::int64_t> numbers;
    bool operator==(const Key&) const = default;
  };
  /// Returns whether backward reaches the input of a layer.
  bool needs_input_gradient(const Settings& settings, const Rank& rank, std::int64_t layer);

  const ModelFamily& family_;
  std::list<std::pair<Key, LayerTrace>> traces_;
  std::vector<bool> trains_before_;  ///< of each layer: a weight in front of it trains
};

}  // namespace megatron
