// A rule that updates each element by itself (AdamW, SGD), through the kernels of the device. They
// walk a table of chunks of bounded size, so that many small and few large tensors are shared
// evenly among threads. Chunk boundaries depend on shapes only.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/optimizer_operations.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/update_rule.h"

namespace megatron {

class ElementwiseRule final : public UpdateRule {
 public:
  /// A state and its format as --exp-avg-dtype names it (state_format()). States of float64 weights
  /// are float64.
  struct StateSpec {
    std::string name, dtype;
    bool is_non_negative = false;
  };
  struct Options {
    ParameterSelector selects;
    std::vector<StateSpec> states;  ///< at most two
    std::function<void(const kernels::UpdatePlan&)> update;
  };

  /// `config` says which parameters decay. `store` and `main` must outlive the rule.
  ElementwiseRule(const OptimizerConfig& config, const ParamStore& store,
                  const MainParameters& main, Options options);

  bool updates(const Parameter& parameter) const override { return options_.selects(parameter); }
  std::vector<OptimizerState>& states() override { return states_; }
  void update(const kernels::StepScalars* scalars) override;

 private:
  /// Returns the chunk of a range, without the pointers to state that may be offloaded. Weights
  /// that are offloaded must be open.
  kernels::UpdateChunk base_chunk(const SumRange& range) const;
  /// Returns one chunk for each of `ranges`, whose state is in memory.
  std::vector<kernels::UpdateChunk> chunks_in_memory(const std::vector<SumRange>& ranges) const;
  std::vector<kernels::UpdateChunk> chunks_of_window(std::size_t window) const;
  /// Returns the buckets with offloaded weights that a window updates.
  std::set<std::size_t> offloaded_buckets(std::size_t window) const;
  /// Updates the pieces with offloaded state, window after window.
  void update_windows();
  /// Updates the pieces of which only the weights are offloaded, bucket after bucket.
  void update_offloaded_weights();
  void run(const std::vector<kernels::UpdateChunk>& chunks);
  /// Calls visit with every array that is offloaded.
  void for_each_array(const std::function<void(OffloadedArray&)>& visit) const;

  const OptimizerConfig config_;
  const ParamStore& store_;
  const MainParameters& main_;
  Options options_;
  std::vector<OptimizerState> states_;
  /// By bucket, the selected ranges of which only the weights are offloaded.
  std::map<std::size_t, std::vector<SumRange>> with_offloaded_weights_;
  at::Tensor table_;
  std::vector<at::Tensor> codes_;  ///< of 8-bit states, on the device
  kernels::UpdatePlan plan_{};
};

/// Create AdamW (Loshchilov and Hutter 2019), with Megatron's parameter groups, and SGD with
/// momentum and L2 decay, as torch.optim.SGD, for the selected parameters of `store`. It must
/// outlive the rule, as must `main`.
std::unique_ptr<UpdateRule> make_adamw(const OptimizerConfig& config, const ParamStore& store,
                                       const MainParameters& main,
                                       ParameterSelector selects = every_parameter);
std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config, const ParamStore& store,
                                     const MainParameters& main,
                                     ParameterSelector selects = every_parameter);

}  // namespace megatron
