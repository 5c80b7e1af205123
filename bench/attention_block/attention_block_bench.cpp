// Times attention blocks of a layer (nn/multi_latent_attention.h, nn/self_attention.h).
//   attention_block_bench FILE fp32|bf16 train STEPS
//   attention_block_bench FILE fp32|bf16 decode STEPS CONTEXT BATCH
//   attention_block_bench fp32|bf16 variants STEPS
// The first two run latent attention on the weights and inputs that latent_turn.py writes, forward
// and backward or one decode step, and print one JSON line for each step. The last one times
// self-attention with norms of q and k and with a gate of the output, in turns with the plain
// block, and prints one line of medians.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "input_file.h"
#include "megatron/base/cpu_affinity.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/multi_latent_attention.h"
#include "megatron/nn/self_attention.h"
#include "megatron/ops/kv_cache.h"
#include "megatron/ops/rotary.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/training/observability/tensor_memory.h"
#include "program.h"

namespace megatron {
namespace {

/// These are the first numbers of the file.
struct Sizes {
  std::int64_t length = 0, batch = 0, hidden = 0, heads = 0, q_lora = 0, kv_lora = 0, qk = 0,
               rotated = 0, v = 0;
};

/// The layer that the block belongs to.
struct Root : Module {
  Root() : Module(nullptr, "") {}
};

TransformerConfig block_config(std::int64_t hidden, std::int64_t heads) {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = hidden;
  config.num_attention_heads = heads;
  config.kv_channels = hidden / heads;
  config.add_bias_linear = false;
  config.normalization = Normalization::RMSNorm;
  config.norm_epsilon = 1e-6;
  config.position_embedding_type = PositionEmbedding::rope;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

TransformerConfig latent_config(const Sizes& sizes) {
  TransformerConfig config = block_config(sizes.hidden, sizes.heads);
  config.multi_latent_attention = config.qk_layernorm = config.cache_mla_latents = true;
  config.q_lora_rank = sizes.q_lora;
  config.kv_lora_rank = sizes.kv_lora;
  config.qk_head_dim = sizes.qk;
  config.qk_pos_emb_head_dim = sizes.rotated;
  config.v_head_dim = sizes.v;
  return config;
}

Sizes read_sizes(std::ifstream& file) {
  const auto n = bench::read_numbers<9>(file);
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]};
}

template <class Work>
double milliseconds_of(const Work& work) {
  const double begin = bench::now_ms();
  work();
  return bench::now_ms() - begin;
}

double norm_of(const at::Tensor& t) {
  return std::sqrt(t.to(at::kDouble).square().sum().item<double>());
}

/// Prints the line of a step. `sum` is a sum of norms, of which the other programs print the same.
void print_step(double ms, double sum) {
  std::printf("{\"ms\": %.4f, \"loss\": %.17g}\n", ms, sum);
  std::fflush(stdout);
}

/// A block of attention and what it needs to run at given positions.
template <class Block>
struct BlockBench {
  BlockBench(TransformerConfig of_block, c10::ScalarType type)
      : config(std::move(of_block)),
        block(&root, "self_attention", {.config = config, .rank = rank, .has_input_norm = false}),
        store(declared_parameters(root), {.dtype = type, .grad_dtype = at::kFloat}) {
    store.initialize(1);
    context.training = true;
  }
  void set_positions(const at::Tensor& positions) {
    const RotaryTables tables = rotary_tables(rotary_frequencies(config), positions, at::kFloat);
    std::tie(context.rotary_cos, context.rotary_sin) = std::tie(tables.cos, tables.sin);
  }
  /// Runs a step of forward and backward. Returns its time, the result, and the gradient of `x`.
  double step(const at::Tensor& input, const at::Tensor& dy, at::Tensor& y, at::Tensor& dx) {
    return milliseconds_of([&] {
      const at::Tensor x = input.detach().requires_grad_();
      store.zero_gradients();
      y = block.forward(x, context);
      y.backward(dy);
      store.finalize_gradients();
      dx = x.grad();
    });
  }

  const TransformerConfig config;
  const Rank rank;
  Root root;
  Block block;
  ParamStore store;
  ForwardContext context;
};

/// Latent attention with the weights of a file, whose inputs are read next.
struct LatentBench : BlockBench<MultiLatentAttention> {
  LatentBench(std::ifstream& file, c10::ScalarType type) : LatentBench(read_sizes(file), type) {
    const auto load = [&](const std::string& name, at::IntArrayRef shape) {
      at::Tensor(store.find("self_attention." + name)->value())
          .copy_(bench::read_values(file, shape));
    };
    load("linear_q_down_proj.weight", {sizes.q_lora, sizes.hidden});
    load("linear_q_up_proj.layer_norm_weight", {sizes.q_lora});
    load("linear_q_up_proj.weight", {sizes.heads * (sizes.qk + sizes.rotated), sizes.q_lora});
    load("linear_kv_down_proj.weight", {sizes.kv_lora + sizes.rotated, sizes.hidden});
    load("linear_kv_up_proj.layer_norm_weight", {sizes.kv_lora});
    load("linear_kv_up_proj.weight", {sizes.heads * (sizes.qk + sizes.v), sizes.kv_lora});
    load("linear_proj.weight", {sizes.hidden, sizes.heads * sizes.v});
  }
  const Sizes sizes;

 private:
  LatentBench(const Sizes& given, c10::ScalarType type)
      : BlockBench(latent_config(given), type), sizes(given) {}
};

void time_training(std::ifstream& file, c10::ScalarType type, int steps) {
  LatentBench bench(file, type);
  const Sizes& sizes = bench.sizes;
  bench.set_positions(at::arange(sizes.length, at::kLong));
  const at::Tensor input =
                       bench::read_values(file, {sizes.length, sizes.batch, sizes.hidden}).to(type),
                   dy =
                       bench::read_values(file, {sizes.length, sizes.batch, sizes.hidden}).to(type);
  for (int i = 0; i < steps; ++i) {
    at::Tensor y, dx;
    const double time = bench.step(input, dy, y, dx);
    double sum = norm_of(y.detach()) + norm_of(dx);
    for (const Parameter* parameter : bench.store.parameters()) sum += norm_of(parameter->grad());
    print_step(time, sum);
  }
}

/// Times decode steps of `batch` sequences. Each has a cache of `length` latents, which are the
/// first numbers of the rows of the input, and continues with a row of the second tensor.
void time_decoding(std::ifstream& file, c10::ScalarType type, int steps, std::int64_t length,
                   std::int64_t batch) {
  const c10::InferenceMode no_gradients;
  LatentBench bench(file, type);
  bench.context.training = false;
  const Sizes& sizes = bench.sizes;
  const at::Tensor kept = bench::read_values(file, {length, 1, 1, sizes.kv_lora + sizes.rotated})
                              .to(type),
                   rows = bench::read_values(file, {batch, 1, sizes.hidden}).to(type);
  std::vector<SequenceCache> sequences(static_cast<std::size_t>(batch));
  Caches caches;
  for (SequenceCache& cache : sequences) {
    cached_attention({{}, kept, kept.narrow(-1, 0, sizes.kv_lora)}, {}, whole_placement(length, {}),
                     {&cache}, bench.block.path());
    cache.length = length;
    caches.push_back(&cache);
  }
  std::vector<std::int64_t> begins(static_cast<std::size_t>(batch + 1));
  std::iota(begins.begin(), begins.end(), 0);
  bench.context.caches = &caches;
  bench.context.cp = &bench.rank.cp;
  bench.context.placement =
      std::make_shared<SequencePlacement>(whole_placement(batch, std::move(begins)));
  bench.set_positions(at::full({batch}, length, at::kLong));
  for (int i = 0; i < steps; ++i) {
    at::Tensor y;
    const double time = milliseconds_of([&] { y = bench.block.forward(rows, bench.context); });
    print_step(time, norm_of(y));
  }
}

/// Times blocks of 16 heads of 64 on one sequence, in turns. The block with a gate has 8 groups of
/// keys, so that its projection is as wide as that of the plain block.
void time_variants(c10::ScalarType type, int steps) {
  constexpr std::int64_t kLength = 4096, kHidden = 1024, kHeads = 16;
  using Bench = BlockBench<SelfAttention>;
  const TransformerConfig plain = block_config(kHidden, kHeads);
  TransformerConfig normed = plain, gated = plain;
  normed.qk_layernorm = true;
  gated.attention_output_gate = gated.group_query_attention = true;
  gated.num_query_groups = kHeads / 2;
  std::vector<std::unique_ptr<Bench>> benches;
  for (const TransformerConfig& config : {plain, normed, gated})
    benches.push_back(std::make_unique<Bench>(config, type));
  const at::Tensor input = at::randn({kLength, 1, kHidden}, at::kFloat).to(type),
                   dy = at::randn({kLength, 1, kHidden}, at::kFloat).to(type);
  std::vector<std::vector<double>> times(benches.size());
  for (int i = -1; i < steps; ++i) {
    for (std::size_t which = 0; which < benches.size(); ++which) {
      if (i < 0) benches[which]->set_positions(at::arange(kLength, at::kLong));
      at::Tensor y, dx;
      const double time = benches[which]->step(input, dy, y, dx);
      if (i >= 0) times[which].push_back(time);
    }
  }
  const double plain_ms = bench::median(times[0]);
  std::printf("{\"qk_norm_ms\": %.4f, \"qk_norm_plain_ms\": %.4f, ", bench::median(times[1]),
              plain_ms);
  std::printf("\"output_gate_ms\": %.4f, \"output_gate_plain_ms\": %.4f}\n",
              bench::median(times[2]), plain_ms);
}

void run(const std::vector<std::string>& words) {
  use_caching_cpu_allocator();
  at::set_num_threads(intra_op_threads({}));
  const std::size_t count = words.size();
  const bool variants = count == 3 && words[1] == "variants",
             trains = count == 4 && words[2] == "train",
             decodes = count == 6 && words[2] == "decode";
  const std::string dtype = variants ? words[0] : count > 1 ? words[1] : "";
  if ((!variants && !trains && !decodes) || (dtype != "fp32" && dtype != "bf16"))
    throw std::invalid_argument(
        "usage: attention_block_bench FILE fp32|bf16 train STEPS, FILE fp32|bf16 decode STEPS "
        "CONTEXT BATCH, or fp32|bf16 variants STEPS");
  const c10::ScalarType type = dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  const int steps = bench::parse_count("STEPS", words[variants ? 2 : 3]);
  if (variants) return time_variants(type, steps);
  std::ifstream file(words[0], std::ios::binary);
  if (trains) return time_training(file, type, steps);
  time_decoding(file, type, steps, bench::parse_count("CONTEXT", words[4]),
                bench::parse_count("BATCH", words[5]));
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
