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

/// A base, so that the weight is there before the head that reads it.
struct OutputLayer {
  explicit OutputLayer(const PartArguments& arguments)
      : words(output_weight(arguments, "output_layer")) {}
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
  return std::make_unique<ClassHead>(arguments.parent, arguments.config, arguments.rank);
}

/// The head of finetuning, as in Megatron-LM's models Classification and MultipleChoice.
std::unique_ptr<Head> make_class_head(const PartArguments& arguments) {
  const TransformerConfig& config = arguments.config;
  return std::make_unique<ClassHead>(
      arguments.parent, config, arguments.rank,
      ClassHeadOptions{.path = config.num_classes == 1 ? "multichoice_head" : "classification_head",
                       .num_outputs = config.num_classes,
                       .label = "class",
                       .loss_name = kLanguageModelLoss,
                       .dropout = config.hidden_dropout,
                       .shows_accuracy = true});
}

}  // namespace

ModelSpec bert_spec(const TransformerConfig& config) {
  ModelSpec spec;
  spec.stacks.push_back(StackSpec{.name = "encoder",
                                  .config = config,
                                  .layers = {.blocks = decoder_blocks},
                                  .causal = false,
                                  .input = make_embedding});
  if (config.num_classes > 0) {
    spec.heads.emplace_back(make_class_head);
    spec.objective.names.emplace_back(kAccuracy);
    return spec;
  }
  if (config.has_lm_head()) spec.heads.emplace_back(make_masked_token_head);
  if (!config.bert_binary_head) return spec;
  spec.heads.emplace_back(make_binary_head);
  spec.objective.names.emplace_back(kSentenceOrderLoss);
  return spec;
}

void add_bert_fields(Microbatch& microbatch) {
  const at::Tensor tokens = microbatch.at("tokens");
  microbatch.tensors["types"] = at::zeros_like(tokens);
  for (const char* classes : {"is_random", "class"})
    microbatch.tensors[classes] = at::zeros({tokens.size(0)}, tokens.options());
  microbatch.per_position.emplace_back("types");
}

}  // namespace megatron
