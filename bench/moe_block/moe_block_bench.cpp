// Times a block of experts, forward and backward, built from our matmuls and activation: router,
// sorting by expert, the two matmuls of each expert on its tokens, and the weighted sum. Reads the
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
#include "megatron/nn/activation.h"
#include "megatron/nn/linear.h"
#include "megatron/params/param_store.h"
#include "program.h"

namespace megatron {
namespace {

/// These are the first five numbers of the file.
struct Sizes {
  std::int64_t tokens = 0, hidden = 0, ffn = 0, experts = 0, top_k = 0;
};

struct Expert {
  Parameter *fc1, *fc2;  ///< [2·ffn, hidden] = gate | up, and [hidden, ffn]
};

class MoeBlock : public Module {
 public:
  explicit MoeBlock(const Sizes& sizes)
      : Module(nullptr, "moe"),
        sizes_(sizes),
        router_(add("router", {sizes.experts, sizes.hidden})) {
    for (std::int64_t e = 0; e < sizes.experts; ++e)
      experts_.push_back({&add("fc1." + std::to_string(e), {2 * sizes.ffn, sizes.hidden}),
                          &add("fc2." + std::to_string(e), {sizes.hidden, sizes.ffn})});
  }

  /// Maps x [tokens, hidden] to the same shape. The weights of a token's experts are the softmax
  /// over the chosen ones, in float32.
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor probabilities = at::softmax(linear(x, router_, nullptr), -1, at::kFloat);
    auto [chosen, experts] = at::topk(probabilities, sizes_.top_k);
    const at::Tensor shares = chosen / chosen.sum(-1, true);
    const at::Tensor by_expert = at::argsort(experts.flatten(), /*stable=*/true);
    const at::Tensor rows = x.index_select(0, at::floor_divide(by_expert, sizes_.top_k));
    const at::Tensor counts = at::bincount(experts.flatten(), {}, sizes_.experts);
    const at::Tensor outputs = of_experts(
        rows, {counts.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(sizes_.experts)});
    const at::Tensor place =
        at::empty_like(by_expert).scatter_(0, by_expert, at::arange(by_expert.numel()));
    const at::Tensor back =
        outputs.index_select(0, place).view({sizes_.tokens, sizes_.top_k, sizes_.hidden});
    return at::bmm(shares.to(back.scalar_type()).unsqueeze(1), back).squeeze(1);
  }

  Parameter& router() { return router_; }
  const std::vector<Expert>& experts() const { return experts_; }

 private:
  Parameter& add(const std::string& name, Shape shape) {
    return declare(name, {Sharding::replicated(std::move(shape)), Init::zeros(), {}}, Axis{});
  }

  /// Takes rows sorted by expert. Expert e has counts[e] of them.
  at::Tensor of_experts(const at::Tensor& rows, at::IntArrayRef counts) {
    std::vector<at::Tensor> outputs;
    const std::vector<at::Tensor> parts = at::split_with_sizes(rows, counts);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const at::Tensor hidden = linear(parts[e], *experts_[e].fc1, nullptr);
      outputs.push_back(
          activated_linear(hidden, {Activation::silu, /*gated=*/true}, *experts_[e].fc2, nullptr));
    }
    return at::cat(outputs);
  }

  Sizes sizes_;
  Parameter& router_;
  std::vector<Expert> experts_;
};

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

void load(MoeBlock& block, const Sizes& sizes, std::ifstream& file) {
  set(block.router(), read(file, {sizes.experts, sizes.hidden}));
  for (const Expert& expert : block.experts())
    set(*expert.fc1, read(file, {2 * sizes.ffn, sizes.hidden}));
  for (const Expert& expert : block.experts())
    set(*expert.fc2, read(file, {sizes.hidden, sizes.ffn}));
}

/// Returns the sum of the norms of the result and of all gradients. The other programs print the
/// same number.
double fingerprint(const MoeBlock& block, const Parameter& router, const at::Tensor& y,
                   const at::Tensor& dx) {
  const auto squares = [](const at::Tensor& t) {
    return t.to(at::kDouble).square().sum().item<double>();
  };
  double fc1 = 0, fc2 = 0;
  for (const Expert& expert : block.experts()) {
    fc1 += squares(expert.fc1->grad());
    fc2 += squares(expert.fc2->grad());
  }
  double sum = 0;
  for (const double value : {squares(y), squares(dx), squares(router.grad()), fc1, fc2})
    sum += std::sqrt(value);
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
  MoeBlock block(sizes);
  ParamStore store(declared_parameters(block), {.dtype = type, .grad_dtype = at::kFloat});
  load(block, sizes, file);
  const at::Tensor input = read(file, {sizes.tokens, sizes.hidden}).to(type),
                   dy = read(file, {sizes.tokens, sizes.hidden}).to(type);
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor x = input.detach().requires_grad_();
    store.zero_gradients();
    const at::Tensor y = block.forward(x);
    y.backward(dy);
    store.finalize_gradients();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::printf("{\"ms\": %.4f, \"loss\": %.17g}\n", time.count(),
                fingerprint(block, block.router(), y.detach(), x.grad()));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
