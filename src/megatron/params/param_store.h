// Binds declared parameters to contiguous buckets of values and gradients, initialises them by
// coordinates and keeps their gradients' books.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/params/grad_reducer.h"
#include "megatron/params/param_bucket.h"
#include "megatron/params/tensor_parallel_gradients.h"

namespace megatron {

class ParamStore : private GradAccumulator {
 public:
  struct Options {
    c10::Device device{c10::kCPU};
    c10::ScalarType dtype = c10::kFloat;  ///< of the weights that layers compute with
    std::optional<c10::ScalarType> grad_dtype =
        {};                                  ///< of the main gradients; none: that of the weights
    bool with_gradients = true;              ///< false for inference: no gradient storage
    DataParallelOptions data_parallel = {};  ///< the default: no other rank holds these weights
    Axis model{"tp-pp"};                     ///< the ranks that hold one replica of the model
    Axis embedding{"embd"};  ///< the ranks that hold the weights which two stages share
  };
  /// Allocates storage for `declared`, the parameters in the order of forward, and binds them. They
  /// must outlive the store.
  ParamStore(std::vector<Parameter*> declared, Options options);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;
  ~ParamStore() override;

  /// All parameters in canonical order: ascending by name. Sums over parameters are taken in this
  /// order on every layout.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// Null when there is none of that name.
  Parameter* find(std::string_view name) const;
  /// In the order in which backward finishes them.
  const std::vector<ParamBucket>& buckets() const { return buckets_; }
  /// What this rank's slices of the buckets hold, in canonical order; at most one piece of a
  /// parameter.
  const std::vector<ParameterPiece>& pieces() const { return pieces_; }
  const DataParallelOptions& data_parallel() const { return options_.data_parallel; }
  const Axis& model_axis() const { return options_.model; }
  c10::Device device() const { return options_.device; }
  std::int64_t num_parameters() const;  ///< true (unpadded) elements held by this rank

  /// Draws every weight by its coordinates; padding rows are zero.
  void initialize(std::uint64_t seed);

  /// Makes every gradient logically zero; the first contribution overwrites. With the number of the
  /// step's microbatches, gradients' sums overlap backward where data_parallel() asks for it: a
  /// bucket's sum starts as soon as all its gradients are there. How many contributions a parameter
  /// gets of a microbatch is learnt from the first such step.
  void zero_gradients(std::int64_t num_microbatches = 0);
  /// While it lives, contributions are put into `queue` instead of being written; running them in
  /// order writes them. Deferrals of one store do not nest.
  class Deferral {
   public:
    Deferral(ParamStore& store, std::vector<std::function<void()>>& queue);
    Deferral(const Deferral&) = delete;
    Deferral& operator=(const Deferral&) = delete;
    ~Deferral() { store_.queue_ = nullptr; }

   private:
    ParamStore& store_;
  };
  /// Zeroes the gradients nothing contributed to and adds up what ranks computed: over the ranks
  /// with the same weights (into this rank's slice with a distributed optimizer), over the stages
  /// that share a weight, then over tp where parts were computed. Gradients are then valid.
  /// Collective over these.
  void finalize_gradients();
  /// Tells gradient compression that a step uses the finalized gradients: call it once per step,
  /// after finalize_gradients(). Until then gradients may be computed and finalized again with the
  /// same result.
  void commit_gradients();
  /// The same without the sums: this rank's own gradients.
  void finalize_local_gradients();
  /// With a distributed optimizer: makes finished gradients whole on every rank. Collective over
  /// data_parallel().shard.
  void gather_gradients();

 private:
  void bind();
  void contribute(Parameter& parameter,
                  std::function<void(at::Tensor& grad, bool fresh)> write) override;
  bool defers() const override { return queue_ != nullptr; }
  void apply_contribution(Parameter& parameter,
                          const std::function<void(at::Tensor& grad, bool fresh)>& write);
  void count(const Parameter& parameter);
  void zero_fresh(const ParamBucket& bucket);
  void record_contribution_counts();
  void reduce_over_stages();
  /// Starts the sums of the buckets that are complete, none before those in front of it.
  void start_complete_buckets();

  /// Contributions to a parameter: in this step until now, and of each microbatch (0: not known, or
  /// none).
  struct ContributionCount {
    std::int64_t seen = 0, per_microbatch = 0;
    std::size_t bucket = 0;
  };

  Options options_;
  std::vector<Parameter*> parameters_;
  std::unordered_map<std::string, Parameter*> by_name_;
  std::vector<ParamBucket> buckets_;
  std::vector<ParameterPiece> pieces_;
  std::vector<ContributionCount> contribution_counts_;  ///< of parameters_
  std::vector<std::int64_t> num_expected_;  ///< parameters of each bucket that this step has not
                                            ///< finished yet; empty: sums wait for the end
  bool is_counted_ = false;
  std::int64_t num_microbatches_ = 0;  ///< of this step; 0: not told
  std::size_t num_started_ = 0;
  std::vector<std::function<void()>>* queue_ = nullptr;
  std::optional<GradReducer> reducer_;
  std::optional<TensorParallelGradients> tp_gradients_;
};

}  // namespace megatron
