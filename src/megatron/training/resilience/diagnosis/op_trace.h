// Runs one microbatch with every op watched: statistics of each output in forward and of the
// gradient that reaches it in backward, and the first op whose own work made a number that is not
// finite. The rerun draws the same dropout, for randomness has coordinates.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/models/language_model.h"
#include "megatron/parallel/axis.h"
#include "megatron/params/param_store.h"
#include "megatron/schedules/schedule.h"
#include "megatron/training/resilience/diagnosis/tensor_statistics.h"

namespace megatron {

/// One op in the order of the forward pass.
struct OpRecord {
  std::string op;  ///< "decoder.layers.0.mlp.linear_fc1",
                   ///< "decoder.layers.0.self_attention.core_attention", "loss"
  TensorStatistics output;
  std::optional<TensorStatistics>
      gradient;  ///< of the loss with respect to the output; none before backward has passed
};

/// The op that turned finite inputs into numbers that are not.
struct FirstBadOp {
  enum class Pass { forward, backward };
  Pass pass = Pass::forward;
  std::string op;
  bool is_first_of_stage = false;  ///< forward: its input came from the stage before
  std::string detail;  ///< the step inside the op ("scores", the autograd node); may be empty
  std::string what;    ///< "output", "gradient of its input", "gradient of <parameter>"
  TensorStatistics statistics;  ///< of `what`
  std::vector<std::int64_t>
      samples;  ///< rows of the microbatch with such numbers; empty: cannot be told
  std::optional<std::string> input;  ///< forward: the op before; null for the first op of a stage
  std::optional<TensorStatistics>
      before;  ///< of what went in: the output of `input`, or the gradient that reached the op
};

struct OpTrace {
  std::vector<OpRecord> ops;  ///< of this rank's stages
  std::optional<FirstBadOp> first_bad;
  double loss_sum = 0, tokens = 0;
  double gradient_scale = 0;  ///< of the loss before backward
};

struct TraceOptions {
  bool per_token = false;      ///< the loss is not divided by the microbatch's tokens
  double gradient_factor = 1;  ///< further factor of the loss before backward: the loss scale over
                               ///< the number of microbatches
  const Axis* pp = nullptr;  ///< whose ranks hold the stages; none: this rank holds the whole model
  ChunkOrder order = ChunkOrder::loop;
  std::function<double(double position)> all_reduce_min =
      {};  ///< collective over the ranks that trace together: the least number; none: this rank is
           ///< alone
};

/// Overwrites the gradients of `weights`, changes nothing else. Backward is left out once forward
/// has met a number that is not finite on any rank. `first_bad` is there on the ranks that met it
/// first, in the order of stages. Collective over pp and the ranks of `all_reduce_min`.
OpTrace trace_microbatch(LanguageModel& model, ParamStore& weights, const Microbatch& microbatch,
                         const TraceOptions& options = {});

/// The parameters that belong to an op: those below its path, or, of a norm inside a linear, those
/// that begin with it.
std::vector<const Parameter*> parameters_of(const ParamStore& weights, const std::string& op);

}  // namespace megatron
