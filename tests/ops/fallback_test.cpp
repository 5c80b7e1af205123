// Every operator's plain ATen kernel, which devices without kernels of ours run, against the CPU's
// kernel. The tensors are float64 on the CPU; the dispatcher is told another device's key. On the
// meta device, results have the sizes of the CPU's.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "megatron/config/recurrent_config.h"
#include "megatron/ops/bias_activation.h"
#include "megatron/ops/causal_conv.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/core_attention.h"
#include "megatron/ops/cross_entropy.h"
#include "megatron/ops/embedding.h"
#include "megatron/ops/gated_norm.h"
#include "megatron/ops/linear_attention.h"
#include "megatron/ops/matmul.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/ops/row_map.h"

namespace megatron {
namespace {

using Arguments = std::vector<c10::IValue>;

/// The linker drops a library's object, with the operators it registers, unless something in it is
/// used.
[[maybe_unused]] const volatile auto kEmbedding = &embedding;
[[maybe_unused]] const volatile auto kCrossEntropy = &cross_entropy_gradient;
[[maybe_unused]] const volatile auto kGroupedMatmul = &grouped_matmul_over_rows_out;
[[maybe_unused]] const volatile auto kColumnSums = &column_sums;
[[maybe_unused]] const volatile auto kActivations = &bias_activation;
[[maybe_unused]] const volatile auto kNorms = &norm_rows;
[[maybe_unused]] const volatile auto kAttention = &core_attention;
[[maybe_unused]] const volatile auto kRowMaps = &sort_by_slot;
[[maybe_unused]] const volatile auto kLinearAttention = &linear_attention;
[[maybe_unused]] const volatile auto kCausalConv = &causal_conv;
[[maybe_unused]] const volatile auto kGatedNorm = &gated_norm;

constexpr double kTolerance = 1e-12;  // sums in another order, in float64

/// Clones tensors, because some operators write their arguments.
Arguments cloned(const Arguments& arguments) {
  Arguments result;
  for (const c10::IValue& value : arguments) {
    result.push_back(value.isTensor() && value.toTensor().defined() ? value.toTensor().clone()
                                                                    : value);
  }
  return result;
}

/// Returns the defined tensors among the results, then those among the arguments.
std::vector<at::Tensor> run(const char* name, c10::DispatchKey key, const Arguments& given) {
  const Arguments arguments = cloned(given);
  Arguments stack = arguments;
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").redispatchBoxed(c10::DispatchKeySet(key),
                                                                           &stack);
  std::vector<at::Tensor> tensors;
  for (const Arguments& values : {stack, arguments}) {
    for (const c10::IValue& value : values) {
      if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
    }
  }
  return tensors;
}

Arguments without_data(Arguments arguments) {
  for (c10::IValue& value : arguments)
    if (value.isTensor() && value.toTensor().defined()) value = value.toTensor().to(at::kMeta);
  return arguments;
}

void expect_same(const char* name, const Arguments& arguments, std::size_t num_results) {
  const at::NoGradGuard no_grad;
  const auto expected = run(name, c10::DispatchKey::CPU, arguments),
             found = run(name, c10::DispatchKey::PrivateUse1, arguments);
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (std::size_t i = 0; i < num_results; ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << name << ", result " << i;
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << name << ", result " << i;
    const double distance = (found[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(distance, kTolerance * (1 + expected[i].abs().max().item<double>()))
        << name << ", result " << i;
  }
  const auto shapes = run(name, c10::DispatchKey::Meta, without_data(arguments));
  ASSERT_EQ(shapes.size(), expected.size()) << name << " on meta";
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(shapes[i].sizes(), expected[i].sizes()) << name << " on meta, result " << i;
    EXPECT_EQ(shapes[i].scalar_type(), expected[i].scalar_type()) << name << " on meta, " << i;
  }
}

at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions(at::kDouble));
}

const c10::IValue kNone;

TEST(Fallback, Matmul) {
  const at::Tensor a = numbers({7, 5}, 1), b = numbers({5, 6}, 2);
  expect_same("megatron::matmul", {a, b, numbers({6}, 3), at::kDouble}, 1);
  expect_same("megatron::matmul_out", {numbers({7, 6}, 4), a, b, true}, 1);
}

TEST(Fallback, GroupedMatmul) {
  const at::Tensor a = numbers({7, 5}, 1), b = numbers({3, 5, 6}, 2), dy = numbers({7, 6}, 3);
  const std::vector<std::int64_t> rows{4, 0, 3};
  expect_same("megatron::grouped_matmul", {a, b, rows, numbers({3, 6}, 4), at::kDouble}, 1);
  expect_same("megatron::grouped_matmul_over_rows_out", {numbers({3, 5, 6}, 5), a, dy, rows, true},
              1);
}

TEST(Fallback, RowMaps) {
  const at::Tensor choices =
      at::tensor({0, 2, 1, -1, 0, 1}, at::TensorOptions().dtype(at::kInt)).view({3, 2});
  const RowMap map = sort_by_slot(choices, halving_codes(3), /*least=*/3).map;
  expect_same("megatron::gather_rows", {numbers({3, 4}, 1), map.source}, 1);
  expect_same("megatron::sum_rows",
              {numbers({map.num_rows(), 4}, 2), map.offsets, map.summands, map.folds}, 1);
}

TEST(Fallback, ColumnSums) { expect_same("megatron::column_sums", {numbers({300, 9}, 1)}, 1); }

TEST(Fallback, Activations) {
  for (std::int64_t kind = 0; kind < 6; ++kind) {
    for (const bool gated : {false, true}) {
      for (const bool has_bias : {false, true}) {
        for (const bool has_weights : {false, true}) {
          const at::Tensor x = numbers({4, 3, 8}, 1), dy = numbers({4, 3, gated ? 4 : 8}, 2);
          const c10::IValue bias = has_bias ? c10::IValue(numbers({8}, 3)) : kNone,
                            weights = has_weights ? c10::IValue(numbers({12}, 4)) : kNone;
          expect_same("megatron::bias_activation", {x, bias, kind, gated, kNone, 0.0, weights}, 1);
          expect_same("megatron::bias_activation_backward",
                      {dy, x, bias, kind, gated, kNone, 0.0, true, weights},
                      2 + has_bias + has_weights);
          if (!gated) continue;
          expect_same("megatron::bias_activation", {x, bias, kind, gated, 0.7, 0.25, weights}, 1);
          expect_same("megatron::bias_activation_backward",
                      {dy, x, bias, kind, gated, 0.7, 0.25, true, weights},
                      2 + has_bias + has_weights);
        }
      }
    }
  }
}

/// LayerNorm and RMSNorm, with and without a branch that passes a dropout.
TEST(Fallback, Norms) {
  const at::Tensor ordinals = at::arange(3, at::kLong);
  for (const bool centred : {false, true}) {
    for (const double probability : {0.0, 0.3}) {
      for (const bool has_branch : {false, true}) {
        const at::Tensor stream = numbers({5, 3, 8}, 1), weight = numbers({8}, 2),
                         rows = numbers({15, 8}, 3);
        const c10::IValue bias = centred ? c10::IValue(numbers({8}, 4)) : kNone,
                          branch = has_branch ? c10::IValue(numbers({5, 3, 8}, 5)) : kNone;
        // The statistics have the shapes of either library, so only sum and y are compared.
        expect_same("megatron::norm_rows",
                    {stream, branch, weight, bias, 1e-5, 0.5, at::kDouble, ordinals, probability, 7,
                     11, kNone},
                    has_branch ? 2 : 1);
        const at::Tensor mean = stream.mean({-1}).reshape({-1}),
                         moment = centred ? stream.var({-1}, false) : stream.square().mean({-1}),
                         rstd = (moment + 1e-5).rsqrt().reshape({-1});
        const at::Tensor shaped = rstd.view({5, 3, 1});
        const Arguments rest{weight,   bias,        1e-5, 0.5, has_branch,
                             ordinals, probability, 7,    11,  kNone};
        Arguments arguments{numbers({5, 3, 8}, 6), numbers({5, 3, 8}, 7), stream,
                            centred ? c10::IValue(mean.view({5, 3, 1})) : kNone, shaped};
        arguments.insert(arguments.end(), rest.begin(), rest.end());
        const bool copies = has_branch && probability > 0;
        if (has_branch == copies)
          expect_same("megatron::norm_rows_backward", arguments,
                      2 + (copies ? 1 : 0) + (centred ? 1 : 0));
      }
    }
  }
}

TEST(Fallback, RotaryEmbeddings) {
  for (const bool interleaved : {false, true}) {
    for (const bool inverse : {false, true}) {
      for (const std::int64_t rows : {6, 12}) {
        const at::Tensor angles = numbers({rows, 3}, 1);
        expect_same("megatron::rotary",
                    {numbers({6, 2, 4, 8}, 2), angles.cos(), angles.sin(), interleaved, inverse},
                    1);
      }
    }
  }
}

TEST(Fallback, SplitQueryKeyValue) {
  const at::Tensor angles = numbers({5, 4}, 1), mixed = numbers({5, 2, 2 * 4 * 8}, 2);
  for (const bool rotates : {false, true}) {
    const c10::IValue cos = rotates ? c10::IValue(angles.cos()) : kNone,
                      sin = rotates ? c10::IValue(angles.sin()) : kNone;
    expect_same("megatron::split_query_key_value", {mixed, 2, 8, cos, sin, false, false}, 3);
    expect_same("megatron::split_query_key_value_backward",
                {numbers({5, 2, 4, 8}, 3), numbers({5, 2, 2, 8}, 4), numbers({5, 2, 2, 8}, 5), 2,
                 mixed.size(2), cos, sin, false, true},
                1);
    expect_same("megatron::split_query_key_value_backward",
                {kNone, numbers({5, 2, 2, 8}, 4), kNone, 2, mixed.size(2), cos, sin, false, true},
                1);
  }
}

TEST(Fallback, CrossEntropy) {
  const at::Tensor logits = numbers({6, 10}, 1), labels = at::arange(6, at::kLong) * 3,
                   mask = at::arange(6).to(at::kFloat);
  const at::Tensor lse = logits.logsumexp({1});
  const auto outputs = at::zeros({6}, at::kDouble);
  const auto check = [&](const char* name, const Arguments& arguments, std::size_t written) {
    const at::NoGradGuard no_grad;
    const auto expected = run(name, c10::DispatchKey::CPU, arguments),
               found = run(name, c10::DispatchKey::PrivateUse1, arguments);
    EXPECT_TRUE(at::allclose(found[written], expected[written], 1e-12, 1e-12)) << name;
  };
  // The ranks' part of the vocabulary begins at 2; lse is argument 2 and label_logit argument 3.
  check("megatron::cross_entropy_statistics", {logits, labels, 2, 18, outputs, outputs}, 2);
  check("megatron::cross_entropy_statistics", {logits, labels, 2, 18, outputs, outputs}, 3);
  check("megatron::cross_entropy_gradient",
        {logits, labels, 2, 18, lse, mask, at::scalar_tensor(0.7, at::kDouble),
         at::zeros_like(logits)},
        5);
}

TEST(Fallback, Embeddings) {
  const at::Tensor table = numbers({9, 4}, 1), ids = at::arange(6, at::kLong).view({3, 2}) * 2;
  expect_same(
      "megatron::embedding",
      {table, ids, 1, 12, numbers({3, 4}, 2),
       at::arange(3, at::kLong).view({3, 1}).expand({3, 2}).contiguous(), 0, 3, at::kDouble},
      1);
  expect_same("megatron::embedding_backward_", {table, ids.reshape({-1}), numbers({6, 4}, 3), 1},
              1);
}

TEST(Fallback, Attention) {
  const at::Tensor q = numbers({6, 2, 4, 8}, 1), k = numbers({6, 2, 2, 8}, 2),
                   v = numbers({6, 2, 2, 8}, 3), ordinals = at::arange(2, at::kLong);
  const Arguments options{true,
                          3,
                          -1,
                          4,
                          0.3,
                          5.0,
                          kNone,
                          numbers({4, 11}, 5),
                          numbers({4}, 4),
                          kNone,
                          kNone,
                          0,
                          0,
                          6,
                          6,
                          true,
                          0,
                          ordinals,
                          0.2,
                          7,
                          0,
                          kNone};
  const auto with_options = [&](Arguments first) {
    first.insert(first.end(), options.begin(), options.end());
    return first;
  };
  expect_same("megatron::attention", with_options({q, k, v}), 3);
}

/// {column, row, count, position} of whole columns, or of pieces that leave out rows.
std::vector<std::int64_t> some_pieces(std::int64_t s, std::int64_t b, std::uint64_t seed) {
  std::vector<std::int64_t> pieces;
  const std::int64_t cut = static_cast<std::int64_t>(seed * 7) % s;
  for (std::int64_t column = 0; column < b; ++column) {
    if (cut > 0) pieces.insert(pieces.end(), {column, 0, cut, seed % 2 == 0 ? 0 : 50});
    if (cut + 1 < s) pieces.insert(pieces.end(), {column, cut + 1, s - cut - 1, 60});
    if (cut == 0 && s == 1) pieces.insert(pieces.end(), {column, 0, 1, 3});
  }
  return pieces;
}

TEST(Fallback, LinearAttention) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const auto of = [seed](std::uint64_t factor, std::int64_t most) {
      return static_cast<std::int64_t>(seed * factor) % most + 1;
    };
    const std::int64_t s = of(37, 150), b = of(1, 2), groups = of(3, 2), heads = groups * of(5, 3),
                       n = of(11, 20), p = of(13, 20);
    const bool delta_rule = seed % 2 == 0, normalizes = seed % 3 == 0;
    const std::vector<std::int64_t> pieces = some_pieces(s, b, seed);
    const auto count = static_cast<std::int64_t>(pieces.size() / 4);
    const at::Tensor q = numbers({s, b, groups, n}, 1),
                     k = numbers({s, b, groups, n}, 2) * (0.5 / static_cast<double>(n)),
                     v = numbers({s, b, heads, p}, 3),
                     g = numbers({s, b, heads}, 4).abs() * (seed % 5 == 0 ? -100 : -0.1);
    const c10::IValue beta =
        seed % 4 != 0 ? c10::IValue(numbers({s, b, heads}, 5).sigmoid()) : kNone;
    const c10::IValue states = seed % 7 < 4 ? c10::IValue(numbers({count, heads, n, p}, 6)) : kNone;
    expect_same("megatron::linear_attention",
                {q, k, v, g, beta, pieces, delta_rule, normalizes, 0.7, states, true}, 2);
    expect_same("megatron::linear_attention_backward",
                {numbers({s, b, heads, p}, 7), q, k, v, g, beta, pieces, delta_rule, normalizes,
                 0.7, states},
                beta.isNone() ? 4 : 5);
  }
}

TEST(Fallback, CausalConv) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const auto of = [seed](std::uint64_t factor, std::int64_t most) {
      return static_cast<std::int64_t>(seed * factor) % most + 1;
    };
    const std::int64_t s = of(37, 90), b = of(1, 2), c = of(11, 150), taps = of(3, kMostConvTaps);
    const std::vector<std::int64_t> pieces = some_pieces(s, b, seed);
    const auto count = static_cast<std::int64_t>(pieces.size() / 4);
    const at::Tensor x = numbers({s, b, c}, 1), weight = numbers({c, taps}, 2);
    const c10::IValue bias = seed % 2 == 0 ? c10::IValue(numbers({c}, 3)) : kNone,
                      states =
                          seed % 3 != 0 ? c10::IValue(numbers({count, c, taps - 1}, 4)) : kNone;
    const bool silu = seed % 5 < 3;
    expect_same("megatron::causal_conv", {x, pieces, weight, bias, states, silu, true},
                taps > 1 ? 2 : 1);
    expect_same("megatron::causal_conv_backward",
                {numbers({s, b, c}, 5), x, pieces, weight, bias, states, silu},
                bias.isNone() ? 2 : 3);
  }
}

TEST(Fallback, GatedNorm) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto size = static_cast<std::int64_t>(seed * 11 % 40 + 1), groups = size % 3 + 1;
    const bool shares_weight = seed % 2 == 0, norm_before_gate = seed % 4 < 2;
    const at::Tensor x = numbers({5, 2, groups * size}, 1),
                     z = numbers({5, 2, groups * size + 3}, 2).narrow(2, 1, groups * size),
                     weight = numbers({shares_weight ? size : groups * size}, 3);
    expect_same("megatron::gated_norm", {x, z, weight, size, norm_before_gate, 1e-5, 0.5}, 1);
    expect_same("megatron::gated_norm_backward",
                {numbers(x.sizes(), 4), x, z, weight, size, norm_before_gate, 1e-5, 0.5}, 3);
  }
}

}  // namespace
}  // namespace megatron
