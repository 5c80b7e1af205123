// Compares a device with the CPU, from single operations to whole runs: MEGATRON_TEST_DEVICE=cuda
// build/bin/training_tests --gtest_filter='Device*'.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/kv_cache.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/ops/rotary.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"
#include "support/test_device.h"
#include "training/small_run.h"

namespace megatron {
namespace {

const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new testing_device::OpenDevice);

class DeviceParity : public testing_device::DeviceTest {
 protected:
  /// Returns deterministic numbers of magnitude about 1 on the CPU.
  static at::Tensor numbers(at::IntArrayRef shape, double seed) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return (at::arange(count, at::kDouble) * (0.7 + seed)).sin().view(shape).to(at::kFloat);
  }
  static double distance(const at::Tensor& device_values, const at::Tensor& expected) {
    const at::Tensor wide = expected.to(at::kDouble);
    return ((device_values.cpu().to(at::kDouble) - wide).norm() / wide.norm().clamp_min(1e-30))
        .item<double>();
  }
};

TEST_F(DeviceParity, DropoutDrawsTheSameMask) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = numbers({5, 3, 37}, 0).to(type),
                     residual = numbers({5, 3, 37}, 1).to(type),
                     ordinals = at::arange(3) + (std::int64_t{1} << 35);
    const at::Tensor expected = dropout_add(
        x, residual,
        {.probability = 0.3, .key = 99, .sample_ordinals = ordinals, .positions = {.first = 7}});
    const DropoutSite site{.probability = 0.3,
                           .key = 99,
                           .sample_ordinals = ordinals.to(device()),
                           .positions = {.first = 7}};
    EXPECT_TRUE(at::equal(dropout_add(x.to(device()), residual.to(device()), site).cpu(), expected))
        << c10::toString(type);
  }
}

TEST_F(DeviceParity, NormsAndRotationsAgree) {
  for (const std::int64_t columns : {64, 1500}) {
    const at::Tensor x = numbers({70, columns}, 0), weight = numbers({columns}, 1),
                     dy = numbers({70, columns}, 2);
    const NormParams params{.weight = weight, .epsilon = 1e-5, .offset = 1},
        on_device{.weight = weight.to(device()), .epsilon = 1e-5, .offset = 1};
    const NormRows expected = norm_rows(x, nullptr, params, at::kFloat),
                   got = norm_rows(x.to(device()), nullptr, on_device, at::kFloat);
    EXPECT_LT(distance(got.y, expected.y), 1e-6);
    const NormGradients gradients = norm_rows_backward(dy, {}, expected, nullptr, params),
                        on_device_gradients =
                            norm_rows_backward(dy.to(device()), {}, got, nullptr, on_device);
    EXPECT_LT(distance(on_device_gradients.dsum, gradients.dsum), 1e-5);
    EXPECT_LT(distance(on_device_gradients.dweight, gradients.dweight), 1e-5);
  }
  const at::Tensor x = numbers({6, 2, 3, 16}, 0), angles = numbers({6, 4}, 1);
  const at::Tensor expected = rotate(x, {angles.cos(), angles.sin()});
  EXPECT_LT(distance(rotate(x.to(device()), {angles.cos().to(device()), angles.sin().to(device())}),
                     expected),
            1e-7);
}

/// Runs passes of prompts, their next parts and single tokens of two sequences, whose caches are
/// where the inputs are.
TEST_F(DeviceParity, AttentionToCachesAgrees) {
  constexpr std::int64_t kLength = 2500;
  const AttentionInputs text{numbers({kLength, 1, 8, 64}, 0), numbers({kLength, 1, 2, 64}, 1),
                             numbers({kLength, 1, 2, 48}, 2)};
  for (const auto& [type, tolerance] :
       {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}, {at::kHalf, 2e-3}}) {
    for (const AttentionOptions& options :
         {AttentionOptions{.scale = 0.125},
          AttentionOptions{.window = {150, 0}, .scale = 0.125, .softcap = 5}}) {
      std::vector<SequenceCache> on_cpu(2), on_device(2);
      for (const auto& [first, second] :
           {std::pair<std::int64_t, std::int64_t>{300, 5}, {1, 128}, {1, 1}, {900, 900}, {1, 2}}) {
        const auto pass = [&](std::vector<SequenceCache>& caches, c10::Device where) {
          const auto rows = [&](const at::Tensor& x) {
            return at::cat({x.narrow(0, caches[0].length, first),
                            x.narrow(0, caches[1].length, second)})
                .to(where, type);
          };
          const at::Tensor out =
              cached_attention({rows(text.q), rows(text.k), rows(text.v)}, options,
                               whole_placement(first + second, {0, first, first + second}),
                               {&caches[0], &caches[1]}, "layer");
          caches[0].length += first;
          caches[1].length += second;
          return out;
        };
        const at::Tensor expected = pass(on_cpu, c10::kCPU), got = pass(on_device, device());
        EXPECT_LT(distance(got, expected), tolerance)
            << c10::toString(type) << ' ' << first << ' ' << second;
      }
    }
  }
}

/// Returns a model with its gradients after one microbatch.
struct Trained {
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> weights;
  double loss = 0;
};

Trained gradients_on(c10::Device device, bool is_llama) {
  auto settings =
      read_run(small_run::flags(
                   is_llama ? std::vector<std::string>{"--position-embedding-type", "rope",
                                                       "--normalization", "RMSNorm", "--swiglu",
                                                       "--disable-bias-linear", "--qk-layernorm"}
                            : std::vector<std::string>{}))
          .options.settings;
  settings.model->vocab_size = 64;
  resolve(settings);
  Trained result{.model = make_gpt_model(*settings.model, Rank{.device = device}),
                 .weights = nullptr};
  result.weights = std::make_unique<ParamStore>(declared_parameters(*result.model),
                                                ParamStore::Options{.device = device});
  result.weights->initialize(1);
  const at::Tensor tokens = (at::arange(2 * 17) * 7 % 64).view({2, 17});
  Microbatch microbatch{.tensors = {{"tokens", tokens.narrow(1, 0, 16).contiguous()},
                                    {"labels", tokens.narrow(1, 1, 16).contiguous()},
                                    {"position_ids", at::arange(16).unsqueeze(0)},
                                    {"loss_mask", at::ones({2, 16})}},
                        .sample_ordinals = at::arange(2).to(device)};
  for (auto& [name, tensor] : microbatch.tensors) tensor = tensor.to(device);
  result.weights->zero_gradients();
  const StepOutput output = result.model->forward_step(microbatch, /*training=*/true);
  output.root.backward();
  result.weights->finalize_gradients();
  result.loss = output.root.item<double>();
  return result;
}

TEST_F(DeviceParity, GradientsOfWholeModelsAgree) {
  for (const bool is_llama : {false, true}) {
    const Trained expected = gradients_on(c10::kCPU, is_llama),
                  got = gradients_on(device(), is_llama);
    EXPECT_NEAR(got.loss / expected.loss, 1, 1e-5);
    for (const Parameter* parameter : expected.weights->parameters()) {
      EXPECT_LT(distance(got.weights->find(parameter->name())->grad(), parameter->grad()), 1e-4)
          << parameter->name();
    }
  }
}

TEST_F(DeviceParity, UpdatesAgree) {
  for (const char* rule : {"adam", "sgd"}) {
    const Trained expected = gradients_on(c10::kCPU, false), got = gradients_on(device(), false);
    for (const Parameter* parameter : expected.weights->parameters()) {
      at::Tensor(got.weights->find(parameter->name())->grad()).copy_(parameter->grad());
    }
    const auto config = OptimizerConfig{.optimizer = rule};
    const auto on_cpu = make_optimizer(config, *expected.weights),
               on_device = make_optimizer(config, *got.weights);
    const StepResult a = on_cpu->step({.lr = 1e-2, .weight_decay = 0.1, .count_zeros = true});
    const StepResult b = on_device->step({.lr = 1e-2, .weight_decay = 0.1, .count_zeros = true});
    EXPECT_NEAR(b.grad_norm / a.grad_norm, 1, 1e-12);
    EXPECT_EQ(b.num_zeros, a.num_zeros);
    for (const Parameter* parameter : expected.weights->parameters()) {
      EXPECT_LT(distance(got.weights->find(parameter->name())->value(), parameter->value()), 1e-6)
          << rule << ' ' << parameter->name();
    }
  }
}

std::vector<double> losses(const std::string& log) {
  std::vector<double> result;
  const std::regex pattern("lm loss: ([0-9.E+-]+)");
  for (std::sregex_iterator match(log.begin(), log.end(), pattern), end; match != end; ++match)
    result.push_back(std::stod((*match)[1]));
  return result;
}

TEST_F(DeviceParity, RunsAgree) {
  for (const auto& [flags, tolerance] : {std::pair<std::vector<std::string>, double>{{}, 1e-3},
                                         {{"--bf16"}, 2e-2},
                                         {{"--num-workers", "0"}, 1e-3}}) {
    auto on_cpu = flags, on_device = flags;
    on_cpu.insert(on_cpu.end(), {"--device", "cpu"});
    on_device.insert(on_device.end(), {"--device", device().is_cuda() ? "cuda" : "cpu"});
    const auto expected = losses(small_run::run(on_cpu).log),
               got = losses(small_run::run(on_device).log);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i] / expected[i], 1, tolerance) << "iteration " << i + 1;
  }
}

}  // namespace
}  // namespace megatron
