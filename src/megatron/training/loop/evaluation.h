// The loss over held-out samples: no dropout, no gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "megatron/models/language_model.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/pipeline_plan.h"
#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct EvaluationContext {
  LanguageModel& model;
  ParamStore& weights;
  PipelinePlan& pipeline;
  const Rank& rank;
};

/// Σloss / Σtokens over `num_microbatches` of the source on every data-parallel rank together;
/// nothing when `stop` became true on the way, which it does on all ranks at once. Collective over
/// the world.
std::optional<double> evaluate(const EvaluationContext& context, MicrobatchSource& source,
                               std::int64_t num_microbatches, const std::function<bool()>& stop);

}  // namespace megatron
