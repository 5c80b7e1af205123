// Uses Megatron as a library: a mesh, a tokenizer, one forward pass of a small GPT with random
// weights, and an engine that generates with it. Prints the loss of the text in bits per byte;
// without training that is about 8.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/async_engine.h"
#include "megatron/inference/update_stream.h"
#include "megatron/models/gpt_model.h"
#include "megatron/parallel/mesh.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/tokenizers/tokenizer.h"

namespace {

megatron::TransformerConfig small_gpt(const megatron::Tokenizer& tokenizer) {
  megatron::TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.num_attention_heads = config.num_query_groups = 4;
  config.kv_channels = 16;
  config.ffn_hidden_size = 256;
  config.max_position_embeddings = 64;
  config.vocab_size = tokenizer.vocab_size();
  return config;
}

/// Returns the mean loss per token.
double mean_loss(megatron::Model& model, const std::vector<std::int32_t>& ids) {
  const at::Tensor tokens = at::tensor(at::ArrayRef<std::int32_t>(ids)).to(at::kLong).view({1, -1});
  const std::int64_t length = tokens.size(1) - 1;
  megatron::Microbatch microbatch;
  microbatch.tensors["tokens"] = tokens.narrow(1, 0, length).contiguous();
  microbatch.tensors["labels"] = tokens.narrow(1, 1, length).contiguous();
  microbatch.tensors["loss_mask"] = at::ones({1, length}, at::kFloat);
  microbatch.tensors["position_ids"] = at::arange(length).unsqueeze(0);
  microbatch.sample_ordinals = at::zeros({1}, at::kLong);
  const at::NoGradGuard no_gradients;
  const auto output = model.forward_step(microbatch, /*training=*/false);
  return output.root.item<double>() / output.count.item<double>();
}

/// Prints the ids of tokens that continue a text as they come. Any number of threads may have
/// streams of an engine at the same time.
void print_continuation(megatron::Model& model, const std::vector<std::int32_t>& ids) {
  megatron::AsyncEngine engine(model);
  megatron::UpdateStream stream = engine.stream(
      {.prompt = {ids.begin(), ids.end()}, .params = {.temperature = 0.8, .max_new_tokens = 16}});
  std::printf("continuation:");
  while (const auto update = stream.next())
    if (update->token) std::printf(" %lld", static_cast<long long>(*update->token));
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string text = argc > 1 ? argv[1] : "To be, or not to be: that is the question";

  // Who computes with whom: eight ranks, two for each layer's matrices, two stages of layers.
  const megatron::Mesh mesh({.tp = 2, .pp = 2}, /*world_size=*/8);
  std::printf("%s\n", mesh.table().c_str());

  const auto tokenizer = megatron::make_tokenizer({.tokenizer_type = "ByteTokenizer"});
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  const megatron::TransformerConfig config = small_gpt(*tokenizer);
  const auto model = megatron::make_model(megatron::gpt_spec(config), config, megatron::Rank{}, {});
  megatron::ParamStore weights(megatron::declared_parameters(*model), {.with_gradients = false});
  weights.initialize(/*seed=*/1);
  print_continuation(*model, ids);
  const double bits = mean_loss(*model, ids) / std::log(2);
  std::printf("%s bits per byte: %.2f\n", std::string(tokenizer->name()).c_str(), bits);
  return std::abs(bits - 8) < 0.5 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "embed: %s\n", error.what());
  return 1;
}
