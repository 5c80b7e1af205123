// Times the block of experts of a layer (nn/moe/moe_layer.h), forward and backward. Reads the
// weights and the input that bench/moe_block/moe_turn.py writes, and prints one JSON line for each
// step.
//   moe_block_bench FILE fp32|bf16 STEPS
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/params/param_store.h"
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

at::Tensor read(std::ifstream& file, at::IntArrayRef shape) {
  at::Tensor values = at::empty(shape, at::kFloat);
  file.read(static_cast<char*>(values.mutable_data_ptr()),
            static_cast<std::streamsize>(values.nbytes()));
  MEGATRON_CHECK(file.good(), "the inputs end early");
  return values;
}

Sizes read_sizes(std::ifstream& file) {
  std::int64_t numbers[5] = {};
  file.read(reinterpret_cast<char*>(numbers), sizeof(numbers));
  MEGATRON_CHECK(file.good(), "the inputs cannot be read");
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

void set(const Parameter& parameter, const at::Tensor& values) {
  at::Tensor(parameter.value()).copy_(values);
}

void load(const ParamStore& store, const Sizes& sizes, std::ifstream& file) {
  set(*store.find("mlp.router.weight"), read(file, {sizes.experts, sizes.hidden}));
  set(*store.find("mlp.experts.linear_fc1.weight"),
      read(file, {sizes.experts, 2 * sizes.ffn, sizes.hidden}));
  set(*store.find("mlp.experts.linear_fc2.weight"),
      read(file, {sizes.experts, sizes.hidden, sizes.ffn}));
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

void run(const std::vector<std::string>& words) {
  if (words.size() != 3 || (words[1] != "fp32" && words[1] != "bf16"))
    throw std::invalid_argument("usage: moe_block_bench FILE fp32|bf16 STEPS");
  at::set_num_threads(intra_op_threads({}));
  std::ifstream file(words[0], std::ios::binary);
  const Sizes sizes = read_sizes(file);
  const auto type = words[1] == "bf16" ? at::kBFloat16 : at::kFloat;
  const int steps = bench::parse_count("STEPS", words[2]);
  const TransformerConfig config = config_of(sizes);
  const Rank rank;
  Root root;
  MoeLayer block(&root, "mlp", {.config = config, .rank = rank, .has_input_norm = false});
  ParamStore store(declared_parameters(root), {.dtype = type, .grad_dtype = at::kFloat});
  load(store, sizes, file);
  const at::Tensor input = read(file, {sizes.tokens, 1, sizes.hidden}).to(type),
                   dy = read(file, {sizes.tokens, 1, sizes.hidden}).to(type);
  ForwardContext context;
  context.training = true;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor x = input.detach().requires_grad_();
    store.zero_gradients();
    const at::Tensor y = block.forward(x, context);
    y.backward(dy);
    store.finalize_gradients();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::printf("{\"ms\": %.4f, \"loss\": %.17g}\n", time.count(),
                fingerprint(store, y.detach(), x.grad()));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
