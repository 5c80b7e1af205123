#include "megatron/inference/token_ids.h"

#include <limits>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {

std::int64_t max_sequence_length(const TransformerConfig& model) {
  return model.position_embedding_type == PositionEmbedding::learned_absolute
             ? model.max_position_embeddings
             : std::numeric_limits<std::int64_t>::max();
}

void check_token_ids(std::span<const std::int64_t> ids, const TransformerConfig& model,
                     const std::string& source) {
  if (ids.empty())
    throw UserError({source + ": ids", "an empty list", "give at least one token id"});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= model.vocab_size) {
      throw UserError(
          {source + ": ids[" + std::to_string(i) + "]", std::to_string(ids[i]),
           "the model's vocabulary has the ids 0 to " + std::to_string(model.vocab_size - 1)});
    }
  }
  if (static_cast<std::int64_t>(ids.size()) > max_sequence_length(model)) {
    throw UserError({source + ": number of ids", std::to_string(ids.size()),
                     "the model has learned positions for " +
                         std::to_string(model.max_position_embeddings) +
                         " tokens (max_position_embeddings)"});
  }
}

std::string long_sequence_warning(const TransformerConfig& model, std::int64_t length,
                                  const std::string& source) {
  const std::int64_t trained = model.max_position_embeddings;
  if (trained <= 0 || length <= trained ||
      model.position_embedding_type == PositionEmbedding::learned_absolute)
    return {};
  std::string note = source + " has " + std::to_string(length) +
                     " tokens, the model was trained for " + std::to_string(trained) +
                     " (max_position_embeddings): its answers beyond that are likely to be poor";
  if (model.position_embedding_type == PositionEmbedding::rope)
    note +=
        "; training on with --finetune and --rotary-seq-len-interpolation-factor or "
        "--use-rope-scaling extends a model";
  return note;
}

}  // namespace megatron
