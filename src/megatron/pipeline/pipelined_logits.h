// Presents a model split into stages as a whole model, so that generation and scoring need no
// pipeline code.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "megatron/config/pipeline_layout.h"
#include "megatron/models/language_model.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

class PipelinedLogits : public LanguageModel {
 public:
  /// `stages` are the stages that `rank` holds under `layout`; they must outlive this object. The
  /// KV cache of a layer stays on the rank of its stage.
  PipelinedLogits(LanguageModel& stages, PipelineLayout layout, const Rank& rank);

  const TransformerConfig& config() const override { return stages_.config(); }
  StageOutput forward_chunk(std::int64_t chunk, const Microbatch& microbatch, const Activations& in,
                            bool training) override;
  /// Returns bit-identical logits on every rank of the pipeline. Hidden states are sent from stage
  /// to stage, and the last stage broadcasts the logits. Collective over pp.
  at::Tensor logits(const at::Tensor& tokens, std::int64_t start, KvCache* states,
                    bool last_token_only) override;

 private:
  Activations receive(std::int64_t chunk, std::int64_t from, const at::Tensor& tokens) const;
  /// Runs this rank's stages and returns the output of the last one.
  Activations run_stages(const InferenceInput& pass);

  LanguageModel& stages_;
  const PipelineLayout layout_;
  const Axis pp_;
  const c10::Device device_;
};

}  // namespace megatron
