// A parameter is first declared (name, sharding, initialisation, tags; no storage) and later bound
// to contiguous buckets by a ParamStore.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/ops/matmul.h"
#include "megatron/params/sharding.h"

namespace megatron {

class Parameter;

/// The distribution a weight is drawn from. Every number is a function of (seed, parameter name,
/// index in the global shape), so a shard holds the same numbers as the whole tensor.
struct Init {
  enum class Kind { constant, normal, uniform, log_of_uniform, time_step };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant; the standard deviation of N(0, σ); the bound a of the others

  static Init zeros() { return {Kind::constant, 0}; }
  static Init ones() { return {Kind::constant, 1}; }
  static Init normal(double sigma) { return {Kind::normal, sigma}; }
  /// U(−a, a).
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  /// log U(1, a): the logarithm of a decay (Mamba).
  static Init log_of_uniform(double most) { return {Kind::log_of_uniform, most}; }
  /// softplus⁻¹(t), where log t is uniform in [log 0.001, log a]: the bias of a time step (Mamba).
  static Init time_step(double most) { return {Kind::time_step, most}; }
  /// Glorot's U(−a, a) with a = √(6 / (fan_in + fan_out)).
  static Init xavier_uniform(std::int64_t fan_in, std::int64_t fan_out);
};

/// How Parameter::pack() packs a weight.
enum class WeightPacking : std::uint8_t {
  none,
  in_place,  ///< all readers use gemm_weight()
  copy       ///< some readers use value()
};

/// Properties of a parameter that the optimizer and the store act on.
struct ParameterTags {
  bool no_decay = false;   ///< no weight decay (norm weights, biases)
  bool embedding = false;  ///< word embedding or output layer; uses the decoupled learning rate
  bool expert = false;
  bool qk_norm = false;  ///< weight decay follows --apply-wd-to-qk-layernorm
  bool precise = false;  ///< read through precise_value(); every rank needs all of it in float32
  WeightPacking packing = WeightPacking::none;
  double learning_rate_factor = 1;  ///< multiplies the learning rate of its group
};

/// The ranks of a pipeline whose stages declare a weight under the same name, as tied embeddings.
/// They add their gradients, so that the copies stay equal.
struct StageHolders {
  std::vector<std::int64_t> ranks = {};  ///< on the pipeline axis, ascending; one or none: unshared
  bool is_owner = true;  ///< the lowest of the stages is on this rank, which counts and saves it
};

/// Who changes a parameter.
enum class ParameterKind : std::uint8_t {
  trained,
  /// Nothing changes it. It has no gradient and no optimizer state, and counts in no norm.
  frozen,
  /// The layer that declares it, during a step (expert bias, amax history). It is no weight: it is
  /// not counted. Its initial value is a constant, which it has from binding on, and which a
  /// checkpoint without it leaves.
  state
};

/// The declaration of a parameter.
struct ParameterSpec {
  Sharding sharding;
  Init init;
  ParameterTags tags;
  StageHolders holders = {};
  ParameterKind kind = ParameterKind::trained;
  /// Dtype of the value; the dtype of the store without a value. Only for kinds that are not
  /// trained.
  std::optional<at::ScalarType> dtype = {};
};

/// Receives the gradient contributions of backward functions.
class GradAccumulator {
 public:
  virtual ~GradAccumulator() = default;
  /// Takes one contribution. `write(grad, fresh)` adds into `grad`, the main gradient in the local
  /// shape, or overwrites it when `fresh`, which is true for the first contribution after
  /// zero_gradients. An implementation may run `write` at once or keep it for later (the W step of
  /// zero-bubble schedules).
  virtual void contribute(Parameter& parameter,
                          std::function<void(at::Tensor& grad, bool fresh)> write) = 0;
  /// Returns whether contributions are kept for later; `write` must then own what it captures.
  virtual bool defers() const = 0;
};

/// Waits for weights that are still being gathered from other ranks.
class WeightReadHook {
 public:
  virtual ~WeightReadHook() = default;
  /// Called before the parameter's value is read. The value must be complete on return.
  virtual void open(const Parameter& parameter) = 0;
};

/// One weight of the model on this rank. `axes` are the mesh axes it is sharded over, one for each
/// split of its Sharding.
class Parameter {
 public:
  Parameter(std::string name, ParameterSpec spec, std::vector<Axis> axes)
      : name_(std::move(name)), spec_(std::move(spec)), axes_(std::move(axes)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  const ParameterSpec& spec() const { return spec_; }
  const Sharding& sharding() const { return spec_.sharding; }
  /// Says that the rows along split `split` lie in another order (AxisSplit::order). The caller
  /// moves the values.
  void set_order(std::size_t split, std::vector<std::int64_t> order) {
    spec_.sharding.splits.at(split).order = std::move(order);
  }
  const std::vector<Axis>& axes() const { return axes_; }
  /// Returns the axis of the first split, for layers whose weights have one.
  const Axis& axis() const { return axes_.front(); }
  /// Makes a trained parameter frozen, before a store binds it.
  void freeze() {
    if (is_trained()) spec_.kind = ParameterKind::frozen;
  }
  bool is_trained() const { return spec_.kind == ParameterKind::trained; }
  /// Returns whether other ranks of the pipeline hold copies.
  bool is_shared() const { return spec_.holders.ranks.size() > 1; }
  Shape local_shape() const { return spec_.sharding.local_shape(axes_); }
  /// Returns the slices of the global tensor that this rank holds.
  std::vector<TensorSlice> slices() const { return spec_.sharding.slices(axes_); }
  /// Returns the slices of the global tensor that this rank counts and saves.
  std::vector<TensorSlice> owned_slices() const {
    return spec_.holders.is_owner ? spec_.sharding.owned_slices(axes_) : std::vector<TensorSlice>{};
  }

  /// Returns the rank's weight, a view into a bucket. Valid while the bucket has storage
  /// (ParamStore::bind_values); with weights gathered on demand, only inside forward and backward.
  const at::Tensor& value() const {
    if (read_hook_ != nullptr) read_hook_->open(*this);
    if (!value_.defined() || is_packed_in_place()) throw_without_value();
    return value_;
  }
  /// Returns the weight for GEMMs, which may be packed.
  GemmWeight gemm_weight() const { return is_packed() ? packed_ : GemmWeight{value()}; }
  /// Packs the weight for GEMMs (ParameterTags::packing), where that is possible. Nothing may
  /// change it until release_packed(), and value() can be read only if the packed weight is a copy.
  void pack();
  /// Ends pack(). A weight that was packed in place must be written again before it is read.
  void release_packed() { packed_ = {}; }
  /// Makes pack() leave value() readable, before a store binds it.
  void never_pack() { spec_.tags.packing = WeightPacking::none; }
  /// Returns the dtype of value(), which need not have storage.
  at::ScalarType dtype() const { return dtype_; }
  /// Returns the main gradient. Valid between ParamStore::finalize_gradients and the next
  /// zero_gradients. With a distributed optimizer only this rank's piece is valid, until
  /// ParamStore::gather_gradients; with sharded gradients it is undefined until then.
  const at::Tensor& grad() const { return grad_; }

  /// Returns the optimizer's float32 main weight when it keeps one beside a 16-bit value, and
  /// value() otherwise. It is meant for weights that enter no GEMM and whose rounding would affect
  /// everything after them: embeddings, and norms, where a step changes a weight near 1 by less
  /// than its last bit.
  const at::Tensor& precise_value() const {
    const at::Tensor& rounded = value();
    return main_.defined() ? main_ : rounded;
  }
  /// Sets the main weight of a parameter tagged precise; an undefined tensor removes it. Called by
  /// the owner of the main weights.
  void set_main(at::Tensor main) { main_ = std::move(main); }
  bool has_main() const { return main_.defined(); }
  /// Sets the hook that value() calls first; null when the value is always complete.
  void set_read_hook(WeightReadHook* hook) { read_hook_ = hook; }

  /// Passes a contribution to the gradient accumulator; drops it unless the parameter is trained.
  /// Called by backward functions.
  void contribute(std::function<void(at::Tensor& grad, bool fresh)> write) {
    if (is_trained()) sink_->contribute(*this, std::move(write));
  }
  /// Returns GradAccumulator::defers() of the accumulator.
  bool defers_gradient() const { return sink_->defers(); }
  /// Contributes `gradient`, which has the local shape.
  void contribute(at::Tensor gradient);

 private:
  friend class ParamStore;
  bool is_packed() const { return packed_.packed_rows > 0; }
  bool is_packed_in_place() const {
    return is_packed() && spec_.tags.packing == WeightPacking::in_place;
  }
  [[noreturn]] void throw_without_value() const;

  std::string name_;
  ParameterSpec spec_;
  std::vector<Axis> axes_;
  at::Tensor value_, grad_;
  GemmWeight packed_;  ///< without rows unless packed
  at::ScalarType dtype_ = at::kFloat;
  GradAccumulator* sink_ = nullptr;
  WeightReadHook* read_hook_ = nullptr;
  bool fresh_ = true;      ///< true until the first contribution after zero_gradients
  std::size_t index_ = 0;  ///< index among the parameters of its store
  at::Tensor main_;
};

/// Returns whether one of the parameters, which may be null, is trained
/// (DifferentiableOp::trains_parameters).
inline bool any_trained(std::initializer_list<const Parameter*> parameters) {
  return std::ranges::any_of(parameters,
                             [](const Parameter* p) { return p != nullptr && p->is_trained(); });
}

/// Returns the weight as an autograd variable for plain ATen operators; its gradient goes to the
/// accumulator. Returns the value itself when grad mode is off or the parameter is not trained.
at::Tensor tracked(Parameter& parameter);

/// Returns a copy of precise_value() in compute_type() with a gradient, which goes to the
/// accumulator. For small weights: operators may save it, because it stays when the weight is
/// released.
at::Tensor tracked_copy(Parameter& parameter);

}  // namespace megatron
