#include "megatron/models/bert_model.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "megatron/models/gpt_model.h"
#include "megatron/nn/bert_heads.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

std::unique_ptr<Input> make_embedding(const PartArguments& arguments) {
  return std::make_unique<LanguageModelEmbedding>(arguments.parent, arguments.config,
                                                  arguments.rank, word_embeddings(arguments),
                                                  arguments.config.token_types());
}

/// The weight of the output layer, tied or not.
struct OutputLayer {
  explicit OutputLayer(const PartArguments& arguments)
      : words(arguments.parent, is_tied(arguments) ? "embedding.word_embeddings" : "output_layer",
              is_tied(arguments)
                  ? word_embeddings(arguments)
                  : output_weight_spec(arguments.config, arguments.vocab_pad_multiple),
              arguments.rank.tp) {}
  ParameterModule words;
};

struct MaskedTokenHead : OutputLayer, MaskedLmHead {
  explicit MaskedTokenHead(const PartArguments& arguments)
      : OutputLayer(arguments),
        MaskedLmHead(arguments.parent, arguments.config, arguments.rank, words.parameter,
                     arguments.vocab_pad_multiple) {}
};

std::unique_ptr<Head> make_masked_token_head(const PartArguments& arguments) {
  return std::make_unique<MaskedTokenHead>(arguments);
}

std::unique_ptr<Head> make_binary_head(const PartArguments& arguments) {
  return std::make_unique<BinaryHead>(arguments.parent, arguments.config, arguments.rank);
}

}  // namespace

ModelSpec bert_spec(const TransformerConfig& config) {
  ModelSpec spec;
  spec.stacks.push_back(StackSpec{.name = "encoder",
                                  .config = config,
                                  .layers = {.blocks = decoder_blocks},
                                  .causal = false,
                                  .input = make_embedding});
  if (config.bert_lm_head) spec.heads.emplace_back(make_masked_token_head);
  if (!config.bert_binary_head) return spec;
  spec.heads.emplace_back(make_binary_head);
  spec.objective.names.emplace_back(kSentenceOrderLoss);
  return spec;
}

void add_bert_fields(Microbatch& microbatch) {
  const at::Tensor tokens = microbatch.at("tokens");
  microbatch.tensors["types"] = at::zeros_like(tokens);
  microbatch.tensors["is_random"] = at::zeros({tokens.size(0)}, tokens.options());
  microbatch.per_position.emplace_back("types");
}

}  // namespace megatron
