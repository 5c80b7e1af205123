// A model in stages as one that answers for all of them: what generation and scoring ask of it,
// they ask as of a whole one.
#pragma once

#include "megatron/config/pipeline_layout.h"
#include "megatron/models/language_model.h"
#include "megatron/parallel/rank.h"

namespace megatron {

class PipelinedLogits : public LanguageModel {
 public:
  /// `stages`: those that `rank` holds, as `layout` says; bound before use, and outlives this.
  /// Layers' states stay with the rank of their stage.
  PipelinedLogits(LanguageModel& stages, PipelineLayout layout, const Rank& rank);

  const TransformerConfig& config() const override { return stages_.config(); }
  StageOutput forward_chunk(std::int64_t chunk, const Microbatch& microbatch, const Activations& in,
                            bool training) override;
  /// The same bits on every rank of the pipeline. Hidden rows travel from stage to stage, the
  /// logits from the last one to all. Collective over pp.
  at::Tensor logits(const at::Tensor& tokens, std::int64_t start, KvCache* states,
                    bool last_token_only) override;

 private:
  Activations receive(std::int64_t chunk, std::int64_t from, const at::Tensor& tokens) const;
  /// Runs this rank's stages; what the last of them left.
  Activations run_stages(const InferenceInput& pass);

  LanguageModel& stages_;
  const PipelineLayout layout_;
  const Axis pp_;
  const c10::Device device_;
};

}  // namespace megatron
