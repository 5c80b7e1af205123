// Times the block of experts of a layer (nn/moe/moe_layer.h), forward and backward. Reads the
// weights and the input that bench/suite/moe_turn.py writes, and prints one JSON line for each
// step.
//   moe_block_bench FILE fp32|bf16 STEPS [--parts]
// With --parts it prints one line of medians: of the whole block, and of its router, its
// permutation (dispatch and combine) and its experts, each run by itself on what the block would
// give it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "input_file.h"
#include "megatron/base/cpu_affinity.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/nn/moe/token_dispatcher.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "megatron/training/observability/tensor_memory.h"
#include "program.h"

namespace megatron {
namespace {

/// These are the first five numbers of the file.
struct Sizes {
  std::int64_t tokens = 0, hidden = 0, ffn = 0, experts = 0, top_k = 0;
};

/// The layer that the block belongs to.
struct Root : Module {
  Root() : Module(nullptr, "") {}
};

TransformerConfig config_of(const Sizes& sizes) {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = sizes.hidden;
  config.activation = Activation::silu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.normalization = Normalization::RMSNorm;
  config.moe.num_experts = sizes.experts;
  config.moe.router_topk = sizes.top_k;
  config.moe.ffn_hidden_size = sizes.ffn;
  return config;
}

Sizes read_sizes(std::ifstream& file) {
  const auto numbers = bench::read_numbers<5>(file);
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

void set(const Parameter& parameter, const at::Tensor& values) {
  at::Tensor(parameter.value()).copy_(values);
}

void load(const ParamStore& store, const Sizes& sizes, std::ifstream& file) {
  set(*store.find("mlp.router.weight"), bench::read_values(file, {sizes.experts, sizes.hidden}));
  set(*store.find("mlp.experts.linear_fc1.weight"),
      bench::read_values(file, {sizes.experts, 2 * sizes.ffn, sizes.hidden}));
  set(*store.find("mlp.experts.linear_fc2.weight"),
      bench::read_values(file, {sizes.experts, sizes.hidden, sizes.ffn}));
}

/// Returns the sum of the norms of the result and of all gradients. The other programs print the
/// same number.
double fingerprint(const ParamStore& store, const at::Tensor& y, const at::Tensor& dx) {
  const auto norm = [](const at::Tensor& t) {
    return std::sqrt(t.to(at::kDouble).square().sum().item<double>());
  };
  double sum = norm(y) + norm(dx);
  for (const Parameter* parameter : store.parameters()) sum += norm(parameter->grad());
  return sum;
}

template <class Work>
double milliseconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// A block with the weights, the input and the gradient of the output of a file.
struct Bench {
  Bench(std::ifstream& file, c10::ScalarType type)
      : sizes(read_sizes(file)),
        config(config_of(sizes)),
        block(&root, "mlp", {.config = config, .rank = rank, .has_input_norm = false}),
        store(declared_parameters(root), {.dtype = type, .grad_dtype = at::kFloat}) {
    load(store, sizes, file);
    input = bench::read_values(file, {sizes.tokens, 1, sizes.hidden}).to(type);
    dy = bench::read_values(file, {sizes.tokens, 1, sizes.hidden}).to(type);
    context.training = true;
  }

  const Sizes sizes;
  const TransformerConfig config;
  const Rank rank;
  Root root;
  MoeLayer block;
  ParamStore store;
  at::Tensor input, dy;
  ForwardContext context;
};

void time_steps(Bench& bench, int steps) {
  for (int step = 0; step < steps; ++step) {
    at::Tensor x, y;
    const double time = milliseconds_of([&] {
      x = bench.input.detach().requires_grad_();
      bench.store.zero_gradients();
      y = bench.block.forward(x, bench.context);
      y.backward(bench.dy);
      bench.store.finalize_gradients();
    });
    std::printf("{\"ms\": %.4f, \"loss\": %.17g}\n", time,
                fingerprint(bench.store, y.detach(), x.grad()));
    std::fflush(stdout);
  }
}

/// Returns a leaf of its own with the values of `t`.
at::Tensor leaf(const at::Tensor& t) { return t.detach().requires_grad_(); }

/// Runs the block and each of its parts in turn, with gradients where the block has them.
void time_parts(Bench& bench, int steps) {
  const TokenDispatcher dispatcher(bench.config.moe, bench.rank);
  const at::Tensor input = bench.input.view({bench.sizes.tokens, bench.sizes.hidden}),
                   dy = bench.dy.view_as(input);
  const RoutingSpan span{.num_positions = bench.sizes.tokens,
                         .tokens_of_ranks = {bench.sizes.tokens}};
  std::vector<double> block, router, permutation, experts;
  for (int step = -1; step < steps; ++step) {
    const auto count = [&](std::vector<double>& times, const auto& part) {
      // Outside the clock: finalize_gradients() fills the gradients of the parts that did not run.
      bench.store.zero_gradients();
      const double time = milliseconds_of(part);
      bench.store.finalize_gradients();
      if (step >= 0) times.push_back(time);
    };
    count(block, [&] { bench.block.forward(leaf(bench.input), bench.context).backward(bench.dy); });
    RoutedTokens routed;
    count(router, [&] {
      routed = bench.block.router().forward(leaf(input), span, bench.context);
      routed.probs.backward(at::ones_like(routed.probs));
    });
    routed.probs = leaf(routed.probs);
    DispatchedTokens tokens;
    count(permutation, [&] {
      tokens = dispatcher.finish_dispatch(
          dispatcher.start_dispatch(leaf(input), routed, bench.sizes.tokens));
      const at::Tensor y = dispatcher.finish_combine(dispatcher.start_combine(tokens.rows, tokens));
      torch::autograd::backward({y, tokens.probs}, {dy, at::ones_like(tokens.probs)});
    });
    const at::Tensor drows = at::index_select(
        dy, 0, at::arange(tokens.rows.size(0), at::kLong).remainder(bench.sizes.tokens));
    count(experts, [&] {
      const DispatchedTokens rows{.rows = leaf(tokens.rows),
                                  .probs = leaf(tokens.probs),
                                  .counts = tokens.counts,
                                  .home = tokens.home};
      bench.block.experts().forward(rows, bench.context).backward(drows);
    });
  }
  std::printf(
      "{\"block_ms\": %.4f, \"router_ms\": %.4f, \"permutation_ms\": %.4f, \"experts_ms\": %.4f}\n",
      bench::median(block), bench::median(router), bench::median(permutation),
      bench::median(experts));
}

void run(const std::vector<std::string>& words) {
  use_caching_cpu_allocator();
  const bool parts = words.size() == 4 && words[3] == "--parts";
  if ((words.size() != 3 && !parts) || (words[1] != "fp32" && words[1] != "bf16"))
    throw std::invalid_argument("usage: moe_block_bench FILE fp32|bf16 STEPS [--parts]");
  at::set_num_threads(intra_op_threads({}));
  std::ifstream file(words[0], std::ios::binary);
  const int steps = bench::parse_count("STEPS", words[2]);
  Bench block(file, words[1] == "bf16" ? at::kBFloat16 : at::kFloat);
  parts ? time_parts(block, steps) : time_steps(block, steps);
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
