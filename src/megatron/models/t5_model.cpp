#include "megatron/models/t5_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include "megatron/models/gpt_model.h"
#include "megatron/nn/cross_attention.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

std::unique_ptr<Input> make_embedding(const PartArguments& arguments) {
  return std::make_unique<LanguageModelEmbedding>(arguments.parent, arguments.config,
                                                  arguments.rank, word_embeddings(arguments),
                                                  /*num_token_types=*/0, arguments.embeddings);
}

std::unique_ptr<Head> make_head(const PartArguments& arguments) {
  return make_output_layer(arguments, "lm_head.output_layer");
}

/// Returns the model's configuration with some of its layers.
TransformerConfig with_layers(TransformerConfig config, std::int64_t first, std::int64_t count) {
  if (!config.layers.empty())
    config.layers = {config.layers.begin() + first, config.layers.begin() + first + count};
  config.decoder_num_layers = first > 0 ? count : 0;
  config.num_layers = count;
  return config;
}

/// Returns the documents of a text: 0 for tokens, which the mask marks with 1, and 1 for padding.
at::Tensor documents_of(const at::Tensor& mask) { return mask.ne(1).to(at::kInt); }

Microbatch viewed(Microbatch microbatch, const char* tokens, const char* mask) {
  microbatch.tensors["tokens"] = microbatch.at(tokens);
  microbatch.tensors["document_ids"] = documents_of(microbatch.at(mask));
  microbatch.tensors.erase("position_ids");
  return microbatch;
}

Microbatch view_of_encoder(const Microbatch& microbatch) {
  return viewed(microbatch, "text_enc", "enc_mask");
}

Microbatch view_of_decoder(const Microbatch& microbatch) {
  Microbatch view = viewed(microbatch, "text_dec", "dec_mask");
  view.tensors["encoder_document_ids"] = documents_of(microbatch.at("enc_mask"));
  return view;
}

}  // namespace

ModelSpec t5_spec(const TransformerConfig& config) {
  const std::int64_t encoder_layers = config.encoder_num_layers();
  ModelSpec spec;
  spec.stacks.push_back(StackSpec{.name = kEncoderRows,
                                  .config = with_layers(config, 0, encoder_layers),
                                  .layers = {.blocks = decoder_blocks},
                                  .causal = false,
                                  .input = make_embedding,
                                  .view = view_of_encoder});
  spec.stacks.push_back(
      StackSpec{.config = with_layers(config, encoder_layers, config.decoder_num_layers),
                .layers = {.blocks = decoder_blocks},
                .input = make_embedding,
                .shares_input = true,
                .view = view_of_decoder});
  spec.heads.emplace_back(make_head);
  return spec;
}

void add_t5_fields(Microbatch& microbatch) {
  const at::Tensor tokens = microbatch.at("tokens");
  for (const char* name : {"text_enc", "text_dec"}) microbatch.tensors[name] = tokens;
  for (const char* name : {"enc_mask", "dec_mask"})
    microbatch.tensors[name] = at::ones_like(tokens);
}

}  // namespace megatron
