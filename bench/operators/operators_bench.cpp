// Times the operators between the matmuls of a step, forward and backward, in turn with PyTorch's
// eager mode, on 1,024 tokens of GPT-2 124M. Our operators include what is in brackets. PyTorch
// needs further operators for it, which are timed too.
//   operators_bench [--dtype f32|bf16] [--turns N] [--json FILE]
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/linear.h"
#include "megatron/nn/loss.h"
#include "megatron/nn/module.h"
#include "megatron/nn/norm.h"
#include "megatron/params/param_store.h"
#include "megatron/training/observability/tensor_memory.h"
#include "program.h"

namespace megatron {
namespace {

constexpr std::int64_t kTokens = 1024, kHidden = 768, kFfn = 3072, kVocabulary = 50257;

struct Times {
  std::vector<double> forward_ms, backward_ms;

  void add(const std::function<at::Tensor()>& forward, const at::Tensor& gradient) {
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor out = forward();
    const auto turn = std::chrono::steady_clock::now();
    out.backward(gradient);
    const auto end = std::chrono::steady_clock::now();
    forward_ms.push_back(std::chrono::duration<double, std::milli>(turn - start).count());
    backward_ms.push_back(std::chrono::duration<double, std::milli>(end - turn).count());
  }
};

/// Drops the first time, which includes filling caches and memory.
double median(std::vector<double> values) {
  values.erase(values.begin());
  return bench::median(std::move(values));
}

class Weights : public Module {
 public:
  Weights() : Module(nullptr, "") {}
  Parameter& add(const char* name, Shape shape) {
    return declare(name, {Sharding::replicated(std::move(shape)), Init::normal(0.02), {}}, Axis{});
  }
  Parameter& add_vocabulary() {
    return declare("vocabulary",
                   {Sharding::vocabulary({kVocabulary, kHidden}, 1), Init::normal(0.02), {}},
                   Axis{});
  }
};

/// The weights of our operators, and PyTorch's weights with the same values and their own
/// gradients.
class Operators {
 public:
  Operators(c10::ScalarType type, int turns, nlohmann::json& rows)
      : type_(type),
        turns_(turns),
        rows_(rows),
        ffn_bias_(weights_.add("ffn_bias", {kFfn})),
        norm_weight_(weights_.add("norm_weight", {kHidden})),
        norm_bias_(weights_.add("norm_bias", {kHidden})),
        vocabulary_(weights_.add_vocabulary()),
        store_(declared_parameters(weights_), {.dtype = type, .grad_dtype = at::kFloat}) {
    store_.initialize(1);
  }

  void run() {
    activations();
    norms();
    vocabulary();
  }

 private:
  at::Tensor leaf(at::IntArrayRef shape) {
    return leaves_.emplace_back(at::randn(shape).to(type_).set_requires_grad(true));
  }
  at::Tensor copy_of(const Parameter& parameter) {
    return leaves_.emplace_back(parameter.value().detach().clone().set_requires_grad(true));
  }
  /// Clears PyTorch's gradients as zero_grad does at the start of a step. Otherwise backward would
  /// add to those of the previous repetition.
  void forget_gradients() {
    for (at::Tensor& leaf : leaves_) leaf.mutable_grad() = at::Tensor();
  }

  void compare(const char* name, const std::function<at::Tensor()>& ours,
               const std::function<at::Tensor()>& theirs, const at::Tensor& gradient) {
    Times own, peer;
    for (int turn = 0; turn <= turns_; ++turn) {
      store_.zero_gradients();
      forget_gradients();
      own.add(ours, gradient);
      store_.finalize_gradients();
      forget_gradients();
      peer.add(theirs, gradient);
    }
    const double of[] = {median(own.forward_ms), median(own.backward_ms), median(peer.forward_ms),
                         median(peer.backward_ms)};
    std::printf("%-44s %9.2f %9.2f %11.2f %9.2f %9.2f ×\n", name, of[0], of[1], of[2], of[3],
                (of[2] + of[3]) / (of[0] + of[1]));
    std::fflush(stdout);
    rows_.push_back({{"operator", name},
                     {"forward_ms", of[0]},
                     {"backward_ms", of[1]},
                     {"torch_forward_ms", of[2]},
                     {"torch_backward_ms", of[3]}});
  }

  void activations() {
    const at::Tensor x = leaf({kTokens, kFfn}), y = leaf({kTokens, kFfn}),
                     bias = copy_of(ffn_bias_), gradient = at::ones({kTokens, kFfn}, type_);
    const auto ours = [&](Activation kind) {
      return [&, kind] { return activate(x, {{kind, false}, &ffn_bias_}); };
    };
    compare(
        "GELU, erf [bias]", ours(Activation::gelu), [&] { return at::gelu(y + bias, "none"); },
        gradient);
    compare(
        "GELU, tanh [bias]", ours(Activation::gelu_tanh),
        [&] { return at::gelu(y + bias, "tanh"); }, gradient);
    compare(
        "SiLU [bias]", ours(Activation::silu), [&] { return at::silu(y + bias); }, gradient);
  }

  void norms() {
    const at::Tensor x = leaf({kTokens, kHidden}), z = leaf({kTokens, kHidden}),
                     gradient = at::ones({kTokens, kHidden}, type_);
    const at::Tensor weight = copy_of(norm_weight_), bias = copy_of(norm_bias_);
    const NormOptions layer_norm{.kind = Normalization::LayerNorm},
        rms_norm{.kind = Normalization::RMSNorm};
    compare(
        "LayerNorm", [&] { return norm(x, norm_weight_, &norm_bias_, layer_norm); },
        [&] { return at::layer_norm(z, {kHidden}, weight, bias, 1e-5); }, gradient);
    compare(
        "RMSNorm", [&] { return norm(x, norm_weight_, nullptr, rms_norm); },
        [&] { return at::rms_norm(z, {kHidden}, weight, 1e-5); }, gradient);
    const at::Tensor stream = leaf({kTokens, kHidden}), branch = leaf({kTokens, kHidden});
    compare(
        "residual and LayerNorm [sum of gradients]",
        [&] {
          const SumAndNorm both =
              dropout_add_norm(x.view({kTokens, 1, kHidden}), branch.view({kTokens, 1, kHidden}),
                               {}, {&norm_weight_, &norm_bias_, layer_norm});
          return (both.sum + both.normalised).view({kTokens, kHidden});
        },
        [&] {
          const at::Tensor sum = z + stream;
          return sum + at::layer_norm(sum, {kHidden}, weight, bias, 1e-5);
        },
        gradient);
  }

  void vocabulary() {
    const at::Tensor ids = at::randint(kVocabulary, {kTokens}, at::kLong),
                     labels = at::randint(kVocabulary, {kTokens}, at::kLong);
    const at::Tensor table = copy_of(vocabulary_), mask = at::ones({kTokens});
    compare(
        "embedding", [&] { return embedding_lookup(ids, vocabulary_); },
        [&] { return at::embedding(table, ids); }, at::ones({kTokens, kHidden}, type_));
    const at::Tensor hidden = leaf({kTokens, kHidden}), other = leaf({kTokens, kHidden}),
                     one = at::ones({});
    compare(
        "head [logits, loss and its gradient]",
        [&] {
          return linear_cross_entropy(hidden, vocabulary_, labels, mask,
                                      {.value = one, .accumulates_in_forward = true})
              .loss_sum;
        },
        [&] {
          return at::cross_entropy_loss(at::linear(other, table).to(at::kFloat), labels, {},
                                        at::Reduction::Sum);
        },
        one);
  }

  c10::ScalarType type_;
  int turns_;
  nlohmann::json& rows_;
  std::vector<at::Tensor> leaves_;
  Weights weights_;
  Parameter &ffn_bias_, &norm_weight_, &norm_bias_, &vocabulary_;
  ParamStore store_;
};

void run(const std::vector<std::string>& words) {
  use_caching_cpu_allocator();
  const bench::Options options =
      bench::parse_options(words, "operators_bench [--dtype f32|bf16] [--turns N] [--json FILE]");
  std::printf("%-44s %9s %9s %11s %9s %11s\n", ("milliseconds, " + options.dtype).c_str(),
              "forward", "backward", "PyTorch f.", "b.", "faster");
  nlohmann::json rows = nlohmann::json::array();
  Operators(options.type(), options.turns, rows).run();
  if (!options.json.empty()) bench::write(options.json, rows.dump(1));
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
