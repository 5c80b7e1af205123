// Attention against its textbook formula (forward) and central differences in float64 (backward),
// for every option of the scores.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "megatron/base/philox.h"
#include "megatron/nn/self_attention.h"
#include "megatron/ops/core_attention.h"
#include "megatron/ops/fused_attention.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

/// Returns the dropout factors, 0 or 1 / (1 − p), of per-sample scores [n, q, k] of the whole
/// model's first n heads, from the definition of dropout by coordinates.
at::Tensor dropout_factors(const DropoutSite& site, std::int64_t n, std::int64_t sq,
                           std::int64_t sk) {
  const std::int64_t b = site.sample_ordinals.numel();
  at::Tensor factors = at::empty({b, n, sq, sk}, at::kDouble);
  const double threshold = std::floor(site.probability * 0x1p32);
  for (std::int64_t sample = 0; sample < b; ++sample) {
    const auto ordinal =
        static_cast<std::uint64_t>(site.sample_ordinals[sample].item<std::int64_t>());
    double* values = factors[sample].mutable_data_ptr<double>();
    for (std::int64_t element = 0; element < n * sq * sk; ++element) {
      const std::uint32_t lane =
          philox_block(site.key, static_cast<std::uint64_t>(element / 4), ordinal)[element % 4];
      values[element] = lane >= threshold ? 1 / (1 - site.probability) : 0;
    }
  }
  return factors;
}

at::Tensor textbook(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionOptions& o) {
  const std::int64_t sq = q.size(0), sk = k.size(0), b = q.size(1), n = q.size(2);
  const auto heads = [&](const at::Tensor& x) {
    return x.repeat_interleave(n / x.size(2), 2).permute({1, 2, 0, 3});
  };
  at::Tensor scores = at::matmul(heads(q), heads(k).transpose(2, 3)) * o.scale;
  if (o.softcap > 0) scores = at::tanh(scores / o.softcap) * o.softcap;
  const at::Tensor q_position = (at::arange(sq) + o.q_start).unsqueeze(1),
                   k_position = (at::arange(sk) + o.k_start).unsqueeze(0);
  if (o.alibi_slopes.defined())
    scores = scores + o.alibi_slopes.view({n, 1, 1}) * (k_position - q_position);
  if (o.distance_bias.defined())
    scores =
        scores +
        o.distance_bias.index_select(1, (k_position - q_position + (o.q_start + sq - 1)).flatten())
            .view({n, sq, sk});
  at::Tensor hidden = at::zeros({b, 1, sq, sk}, at::kBool);
  if (o.causal) hidden = hidden.logical_or(k_position > q_position);
  if (o.window[0] >= 0) hidden = hidden.logical_or(q_position - k_position > o.window[0]);
  if (o.window[1] >= 0) hidden = hidden.logical_or(k_position - q_position > o.window[1]);
  if (o.chunk > 0)
    hidden =
        hidden.logical_or(q_position.floor_divide(o.chunk) != k_position.floor_divide(o.chunk));
  const at::Tensor& of_keys = o.key_document_ids.defined() ? o.key_document_ids : o.document_ids;
  if (o.document_ids.defined())
    hidden = hidden.logical_or((o.document_ids.narrow(1, o.q_start, sq).unsqueeze(2) !=
                                of_keys.narrow(1, o.k_start, sk).unsqueeze(1))
                                   .unsqueeze(1));
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (o.sinks.defined())
    scores = at::cat({scores, o.sinks.view({n, 1, 1}).expand({b, n, sq, 1})}, -1);
  at::Tensor p = at::softmax(scores, -1).narrow(-1, 0, sk);
  if (o.dropout.active())
    p = p * dropout_factors(o.dropout, o.first_head + n, o.q_start + sq, o.k_start + sk)
                .narrow(1, o.first_head, n)
                .narrow(2, o.q_start, sq)
                .narrow(3, o.k_start, sk);
  return at::matmul(p, heads(v)).permute({2, 0, 1, 3}).reshape({sq, b, n * v.size(3)});
}

struct Case {
  const char* name;
  AttentionOptions options;
  std::int64_t sq = 5, sk = 5, b = 2, n = 4, g = 2, d = 3, dv = 3;
};

AttentionOptions with(const std::function<void(AttentionOptions&)>& change) {
  AttentionOptions options;
  options.scale = 0.6;
  change(options);
  return options;
}

std::vector<Case> cases() {
  const at::Tensor documents = at::tensor({0, 0, 1, 1, 2, 0, 1, 1, 1, 1}, at::kInt).view({2, 5});
  const DropoutSite dropout{.probability = 0.3,
                            .key = philox_key(9, "attention"),
                            .sample_ordinals = at::tensor({5, 3}, at::kLong)};
  return {
      {"causal", with([](auto&) {})},
      {"causal, every head its own keys", with([](auto&) {}), 5, 5, 2, 4, 4},
      {"causal, one group, one sample", with([](auto&) {}), 5, 5, 1, 4, 1},
      {"one position", with([](auto&) {}), 1, 1, 2},
      {"bidirectional", with([](auto& o) { o.causal = false; })},
      {"bidirectional, more keys than queries", with([](auto& o) { o.causal = false; }), 3, 6},
      {"the last of many queries", with([](auto& o) { o.q_start = 5; }), 1, 6},
      {"later queries", with([](auto& o) { o.q_start = 4; }), 2, 6},
      {"later keys too", with([](auto& o) { o.q_start = 4, o.k_start = 2; }), 2, 4},
      {"value channels differ", with([](auto&) {}), 5, 5, 2, 4, 2, 3, 2},
      {"window to the left", with([](auto& o) {
         o.window = {1, 0};
       })},
      {"window both sides", with([](auto& o) {
         o.causal = false, o.window = {1, 2};
       })},
      {"chunks", with([](auto& o) { o.chunk = 2; })},
      {"chunks, later queries", with([](auto& o) { o.q_start = 3, o.k_start = 1, o.chunk = 3; }), 3,
       5},
      {"softcap", with([](auto& o) { o.softcap = 0.5; })},
      {"alibi", with([](auto& o) { o.alibi_slopes = alibi_slopes(4); })},
      {"softcap and alibi",
       with([](auto& o) { o.softcap = 0.5, o.alibi_slopes = alibi_slopes(4); })},
      {"sinks", with([](auto& o) { o.sinks = random_input({4}, 1, 5); })},
      {"documents", with([&](auto& o) { o.document_ids = documents; })},
      {"documents of another sequence", with([&](auto& o) {
         o.causal = false, o.document_ids = documents;
         o.key_document_ids = at::tensor({0, 2, 1, 0, 1, 2, 0, 1}, at::kInt).view({2, 4});
       }),
       5, 4},
      {"bias of distances", with([](auto& o) {
         o.distance_bias = random_input({4, 9}, 1, 6);
       })},
      {"bias of distances both ways, more keys than queries", with([](auto& o) {
         o.causal = false, o.distance_bias = random_input({4, 8}, 1, 6);
       }),
       3, 6},
      {"bias of distances, later queries and dropout", with([&](auto& o) {
         o.q_start = 4, o.distance_bias = random_input({4, 11}, 1, 6), o.dropout = dropout;
       }),
       2, 6},
      {"dropout", with([&](auto& o) { o.dropout = dropout; })},
      {"everything", with([&](auto& o) {
         o.sinks = random_input({4}, 1, 5), o.softcap = 2, o.window = {2, 0},
         o.document_ids = documents, o.dropout = dropout;
       })},
  };
}

/// Returns the differentiable tensors of the options.
std::vector<at::Tensor> leaves_of(const AttentionOptions& options) {
  std::vector<at::Tensor> leaves{options.sinks, options.distance_bias};
  std::erase_if(leaves, [](const at::Tensor& x) { return !x.defined(); });
  return leaves;
}

TEST(AttentionGradient, EveryOption) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const at::Tensor q = random_input({c.sq, c.b, c.n, c.d}),
                     k = random_input({c.sk, c.b, c.g, c.d}, 1, 1),
                     v = random_input({c.sk, c.b, c.g, c.dv}, 1, 2);
    EXPECT_LT(difference(core_attention(q, k, v, c.options).out, textbook(q, k, v, c.options)),
              1e-14);
    std::vector<at::Tensor> inputs = leaves_of(c.options);
    inputs.insert(inputs.begin(), {q, k, v});
    check_gradients([&] { return weighted_sum(core_attention(q, k, v, c.options).out); }, inputs,
                    nullptr);
  }
}

/// The result and the gradients of q, k, v and of the options' tensors. These are leaves.
template <class Function>
std::vector<at::Tensor> result_and_gradients(const Function& attention,
                                             const AttentionOptions& options, const at::Tensor& q,
                                             const at::Tensor& k, const at::Tensor& v) {
  const std::vector<at::Tensor> leaves = leaves_of(options);
  for (at::Tensor leaf : leaves) leaf.mutable_grad() = at::Tensor();
  const at::Tensor out = attention(q, k, v);
  out.backward(random_input(out.sizes(), 1, 3).detach().to(at::kFloat).to(out.scalar_type()));
  std::vector<at::Tensor> results{out.detach(), q.grad(), k.grad(), v.grad()};
  for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad().clone());
  return results;
}

/// The CPU's own kernels, which only take float32 and 16 bits, on a rank that holds heads 0 to n −
/// 1 or 2 to n + 1. Sums of a few float32 terms: 2⁻¹⁸ of the largest value leaves 2⁵ of its
/// roundings. The largest value is that of all four tensors, because gradients of q and k are
/// differences of terms as large as the gradient of v (with one key they cancel).
TEST(FusedAttention, EveryOptionInFloat32) {
  for (Case c : cases()) {
    for (const std::int64_t first_head : {0, 2}) {
      SCOPED_TRACE(c.name + std::string(", first head ") + std::to_string(first_head));
      c.options.first_head = first_head;
      const auto leaf = [](const at::Tensor& x, at::ScalarType type) {
        return x.detach().to(at::kFloat).to(type).requires_grad_();
      };
      const auto inputs = [&](at::ScalarType type) {
        return std::array{leaf(random_input({c.sq, c.b, c.n, c.d}), type),
                          leaf(random_input({c.sk, c.b, c.g, c.d}, 1, 1), type),
                          leaf(random_input({c.sk, c.b, c.g, c.dv}, 1, 2), type)};
      };
      const auto [q, k, v] = inputs(at::kFloat);
      ASSERT_TRUE(fused_attention_supports(q.scalar_type()));
      const auto actual = result_and_gradients(
          [&](const auto&... x) { return core_attention(x..., c.options).out; }, c.options, q, k,
          v);
      const auto [q64, k64, v64] = inputs(at::kDouble);
      const auto expected = result_and_gradients(
          [&](const auto&... x) { return textbook(x..., c.options); }, c.options, q64, k64, v64);
      double largest = 0;
      for (const at::Tensor& x : expected)
        largest = std::max(largest, x.abs().max().item<double>());
      for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_LE(difference(actual[i].to(at::kDouble), expected[i]), 0x1p-18 * largest)
            << "output and gradients of q, k, v, sinks and bias: " << i;
    }
  }
}

TEST(AttentionGradient, SlicesOfOneFusedTensor) {
  for (const std::int64_t b : {1, 2}) {
    for (const double probability : {0.0, 0.5}) {
      const at::Tensor mixed = random_input({4, b, 2, 3, 4});
      AttentionOptions options;
      options.dropout = {
          .probability = probability, .key = 3, .sample_ordinals = at::arange(b, at::kLong)};
      check_gradients(
          [&] {
            return weighted_sum(
                core_attention(mixed.select(3, 0), mixed.select(3, 1), mixed.select(3, 2), options)
                    .out);
          },
          {mixed}, nullptr);
    }
  }
}

TEST(AttentionGradient, QueriesThatSeeNothingGiveZeros) {
  AttentionOptions options;
  options.causal = false;
  options.document_ids = at::tensor({0, 0, 1, 2}, at::kInt).view({1, 4});
  options.window = {-1, 0};
  options.k_start = 1;  // the first query lies before every key
  const at::Tensor q = random_input({3, 1, 1, 2}), k = random_input({3, 1, 1, 2}),
                   v = random_input({3, 1, 1, 2});
  const at::Tensor out = core_attention(q, k, v, options).out;
  EXPECT_EQ(out[0].abs().max().item<double>(), 0);
  EXPECT_FALSE(out.isnan().any().item<bool>());
  check_gradients([&] { return weighted_sum(core_attention(q, k, v, options).out); }, {q, k, v},
                  nullptr);
}

/// Uses enough scores that queries are processed in several blocks.
TEST(AttentionGradient, BlocksOfQueriesEqualTheWhole) {
  constexpr std::int64_t kQueries = 40, kKeys = 16384, kHeads = 16;
  AttentionOptions options;
  options.q_start = kKeys - kQueries;
  options.window = {9000, 0};
  const auto make = [](std::int64_t s, double phase) {
    return random_input({s, 1, kHeads, 4}, 1, phase);
  };
  const at::Tensor q = make(kQueries, 0), k = make(kKeys, 1), v = make(kKeys, 2);
  const auto gradients = [&](const at::Tensor& out) {
    for (at::Tensor x : {q, k, v}) x.mutable_grad() = at::Tensor();
    weighted_sum(out).backward();
    return std::vector<at::Tensor>{out.detach(), q.grad().clone(), k.grad().clone(),
                                   v.grad().clone()};
  };
  const auto actual = gradients(core_attention(q, k, v, options).out),
             expected = gradients(textbook(q, k, v, options));
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_LT(difference(actual[i], expected[i]), 1e-13) << i;
}

TEST(AlibiSlopes, FollowThePaper) {
  EXPECT_LT(
      difference(alibi_slopes(4), at::tensor({1 / 4., 1 / 16., 1 / 64., 1 / 256.}, at::kDouble)),
      1e-15);
  // Not a power of two: the slopes of 4 heads, then every second of 8.
  EXPECT_LT(
      difference(alibi_slopes(6),
                 at::tensor({1 / 4., 1 / 16., 1 / 64., 1 / 256., 1 / 2., 1 / 8.}, at::kDouble)),
      1e-15);
}

/// Scores of 10⁸ to 10⁹, where neighbouring float32 values are far apart: the largest score wins,
/// and nothing overflows.
TEST(Attention, HugeScoresPickTheLargest) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const double factor : {1.0, 3.3}) {
      at::Tensor q = at::zeros({9, 1, 1, 16}), k = at::zeros({9, 1, 1, 16}),
                 v = at::randn({9, 1, 1, 16});
      q.select(3, 0).fill_(31234.5 * factor);
      k.select(3, 0).copy_((at::arange(9) + 1).view({9, 1, 1}) * 10987.7);
      q = q.to(type).requires_grad_();
      k = k.to(type).requires_grad_();
      v = v.to(type).requires_grad_();
      const at::Tensor out =
          core_attention(q, k, v, with([](AttentionOptions& o) { o.scale = 0.3; })).out;
      EXPECT_TRUE(at::equal(out.view({9, 16}), v.view({9, 16})))
          << "a causal query sees its own key last and largest";
      out.sum().backward();
      for (const at::Tensor& x : {q, k, v}) EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace megatron
