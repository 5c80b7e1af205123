// A parameter is declared first (name, sharding, initialisation, tags; no storage) and bound later
// to contiguous buckets by a ParamStore.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "megatron/params/sharding.h"

namespace megatron {

class Parameter;

/// How a weight is drawn. Every number has coordinates (site = parameter name, ordinal 0, index in
/// the global shape), so a shard draws what the whole would.
struct Init {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double value = 0;  ///< constant; standard deviation of N(0, σ); bound a of U(−a, a)

  static Init zeros() { return {Kind::constant, 0}; }
  static Init ones() { return {Kind::constant, 1}; }
  static Init normal(double sigma) { return {Kind::normal, sigma}; }
  /// Glorot's U(−a, a), a = √(6 / (fan_in + fan_out)).
  static Init xavier_uniform(std::int64_t fan_in, std::int64_t fan_out);
};

struct ParameterTags {
  bool no_decay = false;   ///< no weight decay (norm weights, biases)
  bool embedding = false;  ///< word embedding or output layer: takes the decoupled learning rate
  bool expert = false;
  bool qk_norm = false;  ///< --apply-wd-to-qk-layernorm decides
  bool precise = false;  ///< read through precise_value(): every rank needs all of it in float32
};

/// A weight that two ranks of a pipeline hold because two stages use it (tied embeddings): their
/// gradients are added, so both stay the same.
enum class StageSharing : std::uint8_t {
  none,
  original,  ///< counted and saved here
  copy       ///< counted and saved on the other rank
};

struct ParameterSpec {
  Sharding sharding;
  Init init;
  ParameterTags tags;
  bool sum_over_tp = false;  ///< replicated, but each tensor-parallel rank computes a part of its
                             ///< gradient: the parts are summed
  StageSharing sharing = StageSharing::none;
};

/// Where backward functions leave a parameter's gradient.
class GradAccumulator {
 public:
  virtual ~GradAccumulator() = default;
  /// Writes one contribution. `write(grad, fresh)` adds into `grad` (the main gradient, shape of
  /// the local value), or overwrites it when `fresh`: nothing was contributed since the gradients
  /// were begun. A sink may run it at once or keep it for later (zero-bubble's W step).
  virtual void contribute(Parameter& parameter,
                          std::function<void(at::Tensor& grad, bool fresh)> write) = 0;
  /// Whether contributions are kept for later: `write` then must own what it needs.
  virtual bool defers() const = 0;
};

/// Waits for weights that other ranks are still sending.
class WeightReadHook {
 public:
  virtual ~WeightReadHook() = default;
  /// Called before the parameter's value is read; afterwards it is there.
  virtual void open(const Parameter& parameter) = 0;
};

/// One weight of the model on this rank.
class Parameter {
 public:
  Parameter(std::string name, ParameterSpec spec, Axis axis)
      : name_(std::move(name)), spec_(std::move(spec)), axis_(std::move(axis)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  const ParameterSpec& spec() const { return spec_; }
  const Sharding& sharding() const { return spec_.sharding; }
  const Axis& axis() const { return axis_; }
  Shape local_shape() const { return spec_.sharding.local_shape(axis_); }
  /// The pieces of the global tensor that are counted and saved on this rank.
  std::vector<TensorSlice> owned_slices() const {
    return spec_.sharing == StageSharing::copy ? std::vector<TensorSlice>{}
                                               : spec_.sharding.owned_slices(axis_);
  }

  /// The rank's weight, a view into a bucket. Valid after binding, and only inside forward and
  /// backward where weights are gathered on demand.
  const at::Tensor& value() const {
    if (read_hook_ != nullptr) read_hook_->open(*this);
    return value_;
  }
  /// The main gradient; meaningful between ParamStore::finalize_gradients and the next
  /// zero_gradients. With a distributed optimizer only this rank's piece is, until
  /// ParamStore::gather_gradients.
  const at::Tensor& grad() const { return grad_; }

  /// The weight that updates work on, in float32, where the optimizer keeps one beside a 16-bit
  /// value: for weights that enter no GEMM and whose rounding would move everything behind them
  /// (embeddings; norms, where a step changes a weight near 1 by less than its last bit). value()
  /// elsewhere.
  const at::Tensor& precise_value() const {
    const at::Tensor& rounded = value();
    return main_.defined() ? main_ : rounded;
  }
  /// Set by the owner of the main weights for parameters tagged precise, and undefined when those
  /// are gone.
  void set_main(at::Tensor main) { main_ = std::move(main); }
  /// Set while reads of the value have to ask; null: the value is there.
  void set_read_hook(WeightReadHook* gate) { read_hook_ = gate; }

  /// Called by backward functions: hands a contribution to the sink.
  void contribute(std::function<void(at::Tensor& grad, bool fresh)> write) {
    sink_->contribute(*this, std::move(write));
  }
  /// GradAccumulator::defers() of the sink.
  bool defers_gradient() const { return sink_->defers(); }
  /// Adds `gradient` (local shape) as a contribution.
  void contribute(at::Tensor gradient);

 private:
  friend class ParamStore;
  std::string name_;
  ParameterSpec spec_;
  Axis axis_;
  at::Tensor value_, grad_;
  GradAccumulator* sink_ = nullptr;
  WeightReadHook* read_hook_ = nullptr;
  bool fresh_ = true;      ///< no contribution since the gradients were begun
  std::size_t index_ = 0;  ///< among the parameters of its store
  at::Tensor main_;
};

/// The weight as an autograd variable for plain ATen operations: its gradient goes to the sink.
/// Without grad mode, the value itself.
at::Tensor tracked(Parameter& parameter);

}  // namespace megatron
