// `megatron replay`: a saved microbatch once more through the model, every op watched.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json.h"
#include "megatron/config/replay_options.h"
#include "megatron/training/resilience/diagnosis/op_trace.h"
#include "megatron/training/resilience/diagnosis/saved_batch.h"

namespace megatron {

struct Replay {
  SavedBatch batch;
  std::string weights_source;  ///< for people
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ParamStore> weights;
  OpTrace trace;
};

/// Loads batch and weights and runs the microbatch. UserErrors for files that are missing, broken
/// or of another model.
Replay replay(const ReplayOptions& options);

/// One row per op: shape, root mean square and largest value of its output and of the gradient that
/// reached it; then the first bad op.
std::string replay_table(const Replay& replay);

/// {"iteration", "microbatch", "loss", "ops": [{"op", "shape", "output": {…}, "gradient": {…} or
/// null}], "first_bad": {…} or null, …}
OrderedJson replay_json(const Replay& replay);

}  // namespace megatron
