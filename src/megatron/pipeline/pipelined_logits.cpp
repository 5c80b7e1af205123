// Shapes: b samples, s positions, v vocabulary.
#include "megatron/pipeline/pipelined_logits.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_part.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {

PipelinedLogits::PipelinedLogits(LanguageModel& stages, PipelineLayout layout, const Rank& rank)
    : LanguageModel(nullptr, ""),
      stages_(stages),
      layout_(std::move(layout)),
      pp_(rank.pp),
      device_(rank.device) {
  MEGATRON_CHECK(pp_.size == layout_.num_ranks, "the layout has ", layout_.num_ranks,
                 " ranks, the axis ", pp_.size);
  MEGATRON_CHECK(stages_.num_chunks() == layout_.num_chunks, "the layout has ", layout_.num_chunks,
                 " chunks, the model ", stages_.num_chunks());
}

StageOutput PipelinedLogits::forward_chunk(std::int64_t chunk, const Microbatch& microbatch,
                                           const Activations& in, bool training) {
  return stages_.forward_chunk(chunk, microbatch, in, training);
}

at::Tensor PipelinedLogits::logits(const at::Tensor& tokens, std::int64_t start, KvCache* states,
                                   bool last_token_only) {
  const Activations left = run_stages(
      {.tokens = tokens, .start = start, .kv_cache = states, .last_token_only = last_token_only});
  const std::int64_t last =
      rank_of(layout_.order, layout_.num_ranks, stage_with(layout_, &StageLayers::has_output));
  const at::Tensor logits_bsv =
      pp_.rank == last
          ? left.front().contiguous()
          : at::empty({tokens.size(0), last_token_only ? 1 : tokens.size(1), config().vocab_size},
                      at::device(device_).dtype(at::kFloat));
  broadcast_(pp_, logits_bsv, last, "logits");
  return logits_bsv;
}

Activations PipelinedLogits::run_stages(const InferenceInput& pass) {
  // No stage follows the one with the output layer.
  const std::int64_t num_stages = stage_with(layout_, &StageLayers::has_output) + 1;
  const auto holder = [&](std::int64_t stage) {
    return rank_of(layout_.order, layout_.num_ranks, stage);
  };
  Activations rows;
  for (std::int64_t stage = 0; stage < num_stages; ++stage) {
    if (holder(stage) != pp_.rank) continue;
    const std::int64_t chunk = chunk_of(layout_.order, layout_.num_ranks, stage);
    if (stage > 0 && holder(stage - 1) != pp_.rank)
      rows = receive(chunk, holder(stage - 1), pass.tokens);
    rows = stages_.forward_inference_chunk(chunk, pass, rows);
    if (stage + 1 == num_stages || holder(stage + 1) == pp_.rank) continue;
    for (const at::Tensor& tensor : rows)
      pp_.comm->send(tensor.contiguous(), holder(stage + 1), "activations");
  }
  return rows;
}

Activations PipelinedLogits::receive(std::int64_t chunk, std::int64_t from,
                                     const at::Tensor& tokens) const {
  Activations rows;
  for (const ActivationSpec& spec :
       stages_.input_specs(chunk, {.tensors = {{"tokens", tokens}}, .sample_ordinals = {}})) {
    rows.push_back(at::empty(spec.shape, at::device(device_).dtype(spec.dtype)));
    pp_.comm->recv(rows.back(), from, "activations");
  }
  return rows;
}

}  // namespace megatron
