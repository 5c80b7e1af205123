// Binds declared parameters to contiguous buckets of values and gradients, initialises them by
// coordinates, and accumulates and reduces their gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "megatron/params/grad_reducer.h"
#include "megatron/params/param_bucket.h"
#include "megatron/params/tensor_parallel_gradients.h"
#include "megatron/params/unit_gradients.h"
#include "megatron/params/unit_values.h"

namespace megatron {

class Communicators;

class ParamStore : private GradAccumulator {
 public:
  struct Options {
    c10::Device device{c10::kCPU};
    c10::ScalarType dtype = c10::kFloat;  ///< dtype of the weights that layers compute with
    /// Dtype of the main gradients. Without a value it is the weights' dtype.
    std::optional<c10::ScalarType> grad_dtype = {};
    /// Keep what rounding bfloat16 gradients lost from one contribution to the next (grad_error.h).
    bool has_grad_error_feedback = false;
    bool with_gradients = true;              ///< false for inference: no gradient storage
    DataParallelOptions data_parallel = {};  ///< By default no other rank holds these weights.
    Axis model{"tp-pp"};  ///< the ranks that together hold one replica of the model
    /// The ranks that hold the model's stages, and what makes the groups of those that share a
    /// weight (ParameterSpec::holders). Neither is needed in a plan of memory.
    Axis pipeline{"pp"};
    Communicators* communicators = nullptr;
    /// The groups of parameters tagged expert; those above without a value.
    std::optional<ReplicaGroups> experts = {};
    /// First parameters of the model's units (unit_starts() in models/model.h). No bucket spans
    /// two units.
    std::unordered_set<const Parameter*> unit_starts = {};
    /// Weights of 16 bits that lie in `value_store` between their uses. Those that layers read in
    /// float32 stay in memory. A plan of memory has no store.
    std::unordered_set<const Parameter*> offloaded_values = {};
    std::shared_ptr<OffloadStore> value_store = {};
  };
  /// Allocates storage for `declared`, the parameters in the order of the forward pass, and binds
  /// them to it. The parameters must outlive the store. Collective over the ranks that share a
  /// weight.
  ParamStore(const std::vector<Parameter*>& declared, Options options);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;
  ~ParamStore() override;

  /// Returns all parameters in canonical order, ascending by name. Sums over parameters use this
  /// order on every layout.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// Returns null when no parameter has that name.
  Parameter* find(std::string_view name) const;
  /// Returns the buckets in the order in which backward finishes them.
  const std::vector<ParamBucket>& buckets() const { return buckets_; }
  /// Returns what this rank's slices of the buckets hold of trained parameters, in canonical order,
  /// with at most one piece per parameter.
  const std::vector<ParameterPiece>& pieces() const { return pieces_; }
  const DataParallelOptions& data_parallel() const { return groups_[0].data_parallel; }
  const Axis& model_axis() const { return groups_[0].model; }
  /// Returns the groups over which the parameters are distributed: first those of dense parameters,
  /// then those of experts if they differ.
  const std::vector<ReplicaGroups>& groups() const { return groups_; }
  /// Returns the index in groups() of a parameter's groups.
  std::size_t group_of(const Parameter& parameter) const {
    return parameter.spec().tags.expert ? groups_.size() - 1 : 0;
  }
  c10::Device device() const { return options_.device; }
  /// Returns the number of elements of weights on this rank, without padding.
  std::int64_t num_parameters() const;
  /// Returns the parts of the parameters' values that this rank keeps between steps, in canonical
  /// order: all of a value, or its piece, if there is one, when values are sharded.
  std::vector<ParameterPiece> kept_pieces() const;
  /// Returns the values of a kept piece, flat, for reading.
  at::Tensor read_kept(const ParameterPiece& piece) const;
  /// Lets `change` write the values of a kept piece, flat. Call end_changes() after the last one.
  void change_kept(const ParameterPiece& piece,
                   const std::function<void(const at::Tensor& flat)>& change);
  /// Forgets values that were gathered or read before they changed.
  void end_changes() {
    if (unit_values_) unit_values_->discard();
  }
  /// Brings the values that this rank keeps of bucket `index` into memory, if they are offloaded:
  /// then slice_value and own_value may be written until close_values().
  void open_values(std::size_t index);
  /// Gives the values of an open bucket back to their store.
  void close_values(std::size_t index);
  /// Returns the values that this rank updates of bucket `index`, for reading.
  at::Tensor read_own_values(std::size_t index) const;
  /// Returns null unless values are sharded or offloaded.
  const UnitValues* unit_values() const { return unit_values_ ? &*unit_values_ : nullptr; }
  UnitValues* unit_values() { return unit_values_ ? &*unit_values_ : nullptr; }
  /// Sets what this rank keeps of a parameter from `whole`, which has the local shape.
  void set_value(const Parameter& parameter, const at::Tensor& whole);
  /// Makes the values of bucket `index` views of `value`, which is flat and has the size, dtype and
  /// device of the bucket.
  /// An undefined tensor gives the storage back; then the values must not be read. No piece of the
  /// old storage may be held, as by the optimizer of a store whose weights are the main weights.
  void bind_values(std::size_t index, at::Tensor value);

  /// Returns the bytes that units of the model hold now, because they are in use or were gathered
  /// ahead: of values that are sharded or offloaded, and of sharded gradients.
  std::int64_t unit_bytes() const {
    return (unit_values_ ? unit_values_->held_bytes() : 0) +
           (unit_gradients_ ? unit_gradients_->held_bytes() : 0);
  }
  /// Returns the bytes of the rounding errors of the gradients; 0 without error feedback.
  std::int64_t num_grad_error_bytes() const;

  /// Draws every weight by its coordinates. Padding rows become zero.
  void initialize(std::uint64_t seed);

  /// Makes every gradient logically zero; the first contribution overwrites it. Given the number of
  /// microbatches of the step, reductions overlap backward where data_parallel() asks for it: the
  /// reduction of a bucket starts as soon as all its gradients are complete. The number of
  /// contributions per parameter and microbatch is learnt from the first such step.
  void zero_gradients(std::int64_t num_microbatches = 0);
  /// Ends the contributions of one microbatch to a chunk of the model: its backward, or its W step
  /// when they were deferred, has run. Sharded gradients are then reduced, which is collective over
  /// the shard axes of groups().
  void end_backward() {
    if (unit_gradients_) unit_gradients_->end_backward();
  }
  /// While it lives, contributions are appended to `queue` instead of being written. Running the
  /// queue in order writes them. Deferrals of one store do not nest.
  class Deferral {
   public:
    Deferral(ParamStore& store, std::vector<std::function<void()>>& queue);
    Deferral(const Deferral&) = delete;
    Deferral& operator=(const Deferral&) = delete;
    ~Deferral() { store_.queue_ = nullptr; }

   private:
    ParamStore& store_;
  };
  /// Zeroes the gradients without a contribution and reduces all gradients: over the ranks with the
  /// same weights (into this rank's slice with a distributed optimizer), over the stages that share
  /// a weight, and over tp where each rank computed a part. Gradients are valid afterwards.
  /// Collective over all these axes.
  void finalize_gradients();
  /// Tells gradient compression that a step uses the finalized gradients: call it once per step,
  /// after finalize_gradients(). Until then gradients may be computed and finalized again with the
  /// same result.
  void commit_gradients();
  /// Finalizes this rank's own gradients without any reduction. Sharded gradients are finalized as
  /// finalize_gradients() does.
  void finalize_local_gradients();
  /// All-gathers finished gradients so that every rank holds them whole. Collective over the shard
  /// axes of groups(); does nothing without a distributed optimizer.
  void gather_gradients();

 private:
  void bind();
  void bind_sharded();
  /// Returns what this rank's slice holds of a parameter, or null.
  const ParameterPiece* find_piece(const Parameter& parameter) const;
  void bind_gradients(std::size_t index, const at::Tensor& grad);
  void contribute(Parameter& parameter,
                  std::function<void(at::Tensor& grad, bool fresh)> write) override;
  bool defers() const override { return queue_ != nullptr; }
  void apply_contribution(Parameter& parameter,
                          const std::function<void(at::Tensor& grad, bool fresh)>& write);
  void count(const Parameter& parameter);
  void zero_fresh(const ParamBucket& bucket);
  void record_contribution_counts();
  /// Starts the reductions of complete buckets, in order: no bucket starts before the one in front
  /// of it.
  void start_complete_buckets();

  /// Counts the contributions to a parameter: in this step so far, and per microbatch (0 when
  /// unknown or none).
  struct ContributionCount {
    std::int64_t seen = 0, per_microbatch = 0;
    std::size_t bucket = 0;
  };

  Options options_;
  std::vector<ReplicaGroups> groups_;
  std::vector<Parameter*> parameters_;
  std::unordered_map<std::string, Parameter*> by_name_;
  std::vector<ParamBucket> buckets_;
  std::vector<ParameterPiece> pieces_, untrained_pieces_;
  /// The bucket of each trained weight that several stages share, and the group of its holders, in
  /// canonical order.
  std::vector<std::pair<std::size_t, std::shared_ptr<Comm>>> shared_buckets_;
  std::vector<at::Tensor> grad_errors_;  ///< int8, per bucket; empty without error feedback
  std::vector<ContributionCount> contribution_counts_;  ///< one per element of parameters_
  /// Unfinished parameters of each bucket in this step. Empty when reductions wait for the end of
  /// the step.
  std::vector<std::int64_t> num_expected_;
  bool is_counted_ = false;
  std::int64_t num_microbatches_ = 0;  ///< microbatches of this step; 0 when not given
  std::size_t num_started_ = 0;
  std::vector<std::function<void()>>* queue_ = nullptr;
  /// Reading is logically const.
  std::unique_ptr<OffloadedValues> offloaded_values_;
  std::optional<UnitValues> unit_values_;
  std::optional<UnitGradients> unit_gradients_;
  std::optional<GradReducer> reducer_;
  std::optional<TensorParallelGradients> tp_gradients_;
};

/// Returns the names of those parameters of all ranks that together hold one replica for which
/// `select` returns true on the ranks that hold them, ascending and without duplicates. Collective
/// over store.model_axis().
std::vector<std::string> all_parameter_names(const ParamStore& store,
                                             bool (*select)(const Parameter&));

}  // namespace megatron
