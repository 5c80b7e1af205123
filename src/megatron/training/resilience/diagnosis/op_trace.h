// Runs one microbatch and records statistics of each op's output in forward and of its gradient in
// backward. Finds the first op that turned finite inputs into a non-finite result. The rerun draws
// the same dropout masks, because random numbers depend only on coordinates.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/models/model.h"
#include "megatron/parallel/axis.h"
#include "megatron/params/param_store.h"
#include "megatron/schedules/schedule.h"
#include "megatron/training/resilience/diagnosis/tensor_statistics.h"

namespace megatron {

/// Statistics of one op; ops are listed in the order of the forward pass.
struct OpRecord {
  std::string op;  ///< "decoder.layers.0.mlp.linear_fc1",
                   ///< "decoder.layers.0.self_attention.core_attention", "loss"
  TensorStatistics output;
  /// Gradient of the loss with respect to the output; nullopt before backward.
  std::optional<TensorStatistics> gradient;
};

/// The op that turned finite inputs into a non-finite result.
struct FirstBadOp {
  enum class Pass { forward, backward };
  Pass pass = Pass::forward;
  std::string op;
  bool is_first_of_stage = false;  ///< forward: its input came from the previous pipeline stage
  std::string detail;  ///< the step inside the op ("scores", or an autograd node); may be empty
  std::string what;    ///< "output", "gradient of its input", "gradient of <parameter>"
  TensorStatistics statistics;  ///< statistics of `what`
  /// Affected rows or packed sequences of the microbatch; empty if unknown.
  std::vector<std::int64_t> samples;
  /// forward: the previous op; nullopt for the first op of a stage
  std::optional<std::string> input;
  /// Statistics of the op's input: the output of `input`, or the incoming gradient.
  std::optional<TensorStatistics> before;
};

struct OpTrace {
  std::vector<OpRecord> ops;  ///< the ops of this rank's stages
  std::optional<FirstBadOp> first_bad;
  double loss_sum = 0, tokens = 0;
  double gradient_scale = 0;  ///< factor on the loss before backward
};

struct TraceOptions {
  bool per_token = false;  ///< the loss is not divided by the microbatch's token count
  /// Further factor on the loss before backward: loss scale / number of microbatches.
  double gradient_factor = 1;
  /// Axis of the ranks that hold the stages; null: this rank holds the whole model.
  const Axis* pp = nullptr;
  ChunkOrder order = ChunkOrder::loop;
  /// Minimum over the ranks that trace together (collective); empty: single rank.
  std::function<double(double position)> all_reduce_min = {};
};

/// Runs the microbatch as the first of a step. Overwrites the gradients of `weights` and the
/// statistics of the routers, with which the next step begins anew, and changes nothing else. Skips
/// backward when forward produced a non-finite value on any rank. `first_bad` is set on the ranks
/// where it occurred first, in the order of stages. Collective over pp and over the ranks of
/// `all_reduce_min`.
OpTrace trace_microbatch(Model& model, ParamStore& weights, const Microbatch& microbatch,
                         const TraceOptions& options = {});

/// Returns the parameters that belong to an op: those below its path, or, for a norm inside a
/// linear layer, those whose names begin with its path.
std::vector<const Parameter*> parameters_of(const ParamStore& weights, const std::string& op);

}  // namespace megatron
