// Times blocks of attention and of recurrent layers (nn/multi_latent_attention.h,
// nn/self_attention.h, nn/ssm).
//   attention_block_bench FILE fp32|bf16 train STEPS
//   attention_block_bench FILE fp32|bf16 decode STEPS CONTEXT BATCH
//   attention_block_bench FILE fp32|bf16 recurrent-train STEPS
//   attention_block_bench FILE fp32|bf16 recurrent-decode STEPS CONTEXT
//   attention_block_bench FILE fp32|bf16 scan STEPS LENGTH
//   attention_block_bench fp32|bf16 variants STEPS
// The first two run latent attention on the weights and inputs that latent_turn.py writes, forward
// and backward or one decode step, and print one JSON line for each step. The next two do the same
// with the recurrent layer that recurrent_turn.py writes, and `scan` runs its linear attention
// alone. The last one times self-attention with norms of q and k and with a gate of the output, in
// turns with the plain block, and prints one line of medians.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
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
#include "megatron/nn/ssm/gated_delta_net.h"
#include "megatron/nn/ssm/mamba_mixer.h"
#include "megatron/ops/kv_cache.h"
#include "megatron/ops/linear_attention.h"
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

/// Times forward and backward on an input and a gradient of the output that are read from the file.
template <class Block>
void time_steps(BlockBench<Block>& bench, std::ifstream& file, at::IntArrayRef shape,
                c10::ScalarType type, int steps) {
  const at::Tensor input = bench::read_values(file, shape).to(type),
                   dy = bench::read_values(file, shape).to(type);
  for (int i = 0; i < steps; ++i) {
    at::Tensor y, dx;
    const double time = bench.step(input, dy, y, dx);
    double sum = norm_of(y.detach()) + norm_of(dx);
    for (const Parameter* parameter : bench.store.parameters()) sum += norm_of(parameter->grad());
    print_step(time, sum);
  }
}

void time_training(std::ifstream& file, c10::ScalarType type, int steps) {
  LatentBench bench(file, type);
  const Sizes& sizes = bench.sizes;
  bench.set_positions(at::arange(sizes.length, at::kLong));
  time_steps(bench, file, {sizes.length, sizes.batch, sizes.hidden}, type, steps);
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

/// A recurrent layer: the first numbers of its file.
struct RecurrentLayer {
  bool is_delta_net = false;
  std::int64_t length = 0, hidden = 0;
  RecurrentSizes sizes = {};
};

RecurrentLayer read_recurrent_layer(std::ifstream& file) {
  const auto n = bench::read_numbers<8>(file);
  return {
      .is_delta_net = n[0] != 0,
      .length = n[1],
      .hidden = n[2],
      .sizes = {.groups = n[3], .heads = n[4], .key_dim = n[5], .value_dim = n[6], .taps = n[7]}};
}

TransformerConfig recurrent_config(const RecurrentLayer& layer) {
  const RecurrentSizes& sizes = layer.sizes;
  TransformerConfig config = block_config(layer.hidden, sizes.heads);
  config.mamba = {.state_dim = sizes.key_dim,
                  .head_dim = sizes.value_dim,
                  .num_groups = sizes.groups,
                  .num_heads = sizes.heads,
                  .conv_kernel_dim = sizes.taps,
                  .norm_groups = 1};
  config.linear_attention = {.conv_kernel_dim = sizes.taps,
                             .key_head_dim = sizes.key_dim,
                             .value_head_dim = sizes.value_dim,
                             .num_key_heads = sizes.groups,
                             .num_value_heads = sizes.heads};
  return config;
}

/// Calls f(bench, layer) with the layer of a file and its weights. The file goes on with inputs.
template <class Function>
void with_recurrent_layer(std::ifstream& file, c10::ScalarType type, const Function& f) {
  const RecurrentLayer layer = read_recurrent_layer(file);
  const TransformerConfig config = recurrent_config(layer);
  const auto run_bench = [&](auto&& bench) {
    for (const Parameter* parameter : bench.store.parameters()) {
      const at::Tensor value = parameter->value();
      value.copy_(bench::read_values(file, value.sizes()));
    }
    f(bench, layer);
  };
  if (layer.is_delta_net) return run_bench(BlockBench<GatedDeltaNet>(config, type));
  run_bench(BlockBench<MambaMixer>(config, type));
}

/// Times decode steps of a sequence after `length` tokens, which are the rows of the input over and
/// over.
void time_recurrent_decoding(std::ifstream& file, c10::ScalarType type, int steps,
                             std::int64_t length) {
  const c10::InferenceMode no_gradients;
  with_recurrent_layer(file, type, [&](auto& bench, const RecurrentLayer& layer) {
    const at::Tensor rows = bench::read_values(file, {layer.length, 1, layer.hidden}).to(type);
    SequenceCache cache;
    const Caches caches{&cache};
    bench.context.training = false;
    bench.context.caches = &caches;
    bench.context.cp = &bench.rank.cp;
    const auto pass = [&](std::int64_t count) {
      bench.context.placement = std::make_shared<SequencePlacement>(whole_placement(count, {}));
      const at::Tensor y = bench.block.forward(rows.narrow(0, 0, count), bench.context);
      cache.length += count;
      return y;
    };
    while (cache.length < length) pass(std::min(layer.length, length - cache.length));
    for (int i = 0; i < steps; ++i) {
      at::Tensor y;
      const double time = milliseconds_of([&] { y = pass(1); });
      print_step(time, norm_of(y));
    }
  });
}

/// Times forward and backward of a layer's linear attention on one sequence of `length` rows, a
/// multiple of 64, which repeat. There is no sum of norms, which would need memory.
void time_scan(std::ifstream& file, c10::ScalarType type, int steps, std::int64_t length) {
  constexpr std::int64_t kRows = 64;
  const RecurrentLayer layer = read_recurrent_layer(file);
  const RecurrentSizes& sizes = layer.sizes;
  const auto repeated = [&](const at::Tensor& x) { return x.repeat({length / kRows, 1, 1, 1}); };
  const auto random = [&](std::int64_t count, std::int64_t width) {
    return repeated(at::randn({kRows, 1, count, width}).to(type));
  };
  const auto uniform = [&] { return repeated(at::rand({kRows, 1, sizes.heads, 1})).squeeze(-1); };
  const at::Tensor q = random(sizes.groups, sizes.key_dim), k = random(sizes.groups, sizes.key_dim),
                   v = random(sizes.heads, sizes.value_dim), g = -uniform(), beta = uniform(),
                   dy = random(sizes.heads, sizes.value_dim);
  const LinearAttentionRule rule{.delta_rule = layer.is_delta_net,
                                 .normalizes_qk = layer.is_delta_net};
  const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(); };
  for (int i = 0; i < steps; ++i) {
    const double time = milliseconds_of([&] {
      const LinearAttentionInputs inputs{leaf(q), leaf(k), leaf(v), leaf(g), leaf(beta)};
      linear_attention(inputs, {.rule = rule}).out.backward(dy);
    });
    print_step(time, 0);
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
  // The number of words of each mode that has a file.
  static const std::map<std::string, std::size_t> kModes{
      {"train", 4}, {"decode", 6}, {"recurrent-train", 4}, {"recurrent-decode", 5}, {"scan", 5}};
  const std::size_t count = words.size();
  const bool variants = count == 3 && words[1] == "variants";
  const std::string dtype = count > 1 ? words[variants ? 0 : 1] : "",
                    mode = count > 2 ? words[2] : "";
  const auto wanted = kModes.find(mode);
  const bool has_mode = variants || (wanted != kModes.end() && wanted->second == count);
  if (!has_mode || (dtype != "fp32" && dtype != "bf16"))
    throw std::invalid_argument(
        "usage: attention_block_bench FILE fp32|bf16 train|recurrent-train STEPS, "
        "FILE fp32|bf16 decode STEPS CONTEXT BATCH, FILE fp32|bf16 recurrent-decode STEPS CONTEXT, "
        "FILE fp32|bf16 scan STEPS LENGTH, or fp32|bf16 variants STEPS");
  const c10::ScalarType type = dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  const int steps = bench::parse_count("STEPS", words[variants ? 2 : 3]);
  if (variants) return time_variants(type, steps);
  std::ifstream file(words[0], std::ios::binary);
  if (mode == "train") return time_training(file, type, steps);
  if (mode == "recurrent-train")
    return with_recurrent_layer(file, type, [&](auto& bench, const RecurrentLayer& layer) {
      time_steps(bench, file, {layer.length, 1, layer.hidden}, type, steps);
    });
  const int length = bench::parse_count(mode == "scan" ? "LENGTH" : "CONTEXT", words[4]);
  if (mode == "scan") return time_scan(file, type, steps, length);
  if (mode == "recurrent-decode") return time_recurrent_decoding(file, type, steps, length);
  time_decoding(file, type, steps, length, bench::parse_count("BATCH", words[5]));
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
