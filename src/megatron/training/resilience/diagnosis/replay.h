// Implements `megatron replay`: runs a saved microbatch through the model again and records every
// op.
#pragma once

#include <memory>
#include <string>

#include "megatron/base/json_text.h"
#include "megatron/config/diagnosis_options.h"
#include "megatron/models/model_family.h"
#include "megatron/training/resilience/diagnosis/op_trace.h"
#include "megatron/training/resilience/diagnosis/saved_batch.h"

namespace megatron {

struct Replay {
  SavedBatch batch;
  std::string weights_source;  ///< description of the weights' origin, for output
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> weights;
  OpTrace trace;
};

/// Loads batch and weights and runs the microbatch. UserError when a file is missing or damaged, or
/// belongs to another model.
Replay replay(const ReplayOptions& options, const ModelFamilies& families = library_families());

/// Returns a table with one row per op: shape, root mean square and maximum of its output and of
/// its gradient; then the first bad op.
std::string replay_table(const Replay& replay);

/// Returns {"iteration", "microbatch", "loss", "ops": [{"op", "shape", "output": {…}, "gradient":
/// {…} or null}], "first_bad": {…} or null, …}.
JsonText replay_json(const Replay& replay);

}  // namespace megatron
