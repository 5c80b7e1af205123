// Computes the loss over held-out samples, without dropout and without gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "megatron/models/model.h"
#include "megatron/params/param_store.h"
#include "megatron/pipeline/pipeline_plan.h"
#include "megatron/training/feeding/microbatch_source.h"
#include "megatron/training/resilience/section_watch.h"

namespace megatron {

struct Rank;

struct EvaluationContext {
  Model& model;
  ParamStore& weights;
  const PipelinePlan& pipeline;
  const Rank& rank;
  SectionWatch& sections;
};

/// Returns Σloss / Σtokens over `num_microbatches` microbatches of every data-parallel rank.
/// Returns nullopt when `stop` returned true before the end; `stop` must return the same value on
/// all ranks. Collective over the world.
std::optional<double> evaluate(const EvaluationContext& context, MicrobatchSource& source,
                               std::int64_t num_microbatches, const std::function<bool()>& stop);

}  // namespace megatron
