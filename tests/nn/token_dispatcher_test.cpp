// Tokens on their way to the experts of other ranks and back, by every dispatcher, with routing as
// bad as it can be.
#include "megatron/nn/moe/token_dispatcher.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kExperts = 8, kHidden = 5;

struct Case {
  std::string name;
  std::int64_t tokens, topk;
  /// The i-th expert of token t on a rank.
  std::function<std::int64_t(std::int64_t rank, std::int64_t t, std::int64_t i)> expert;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"spread", 6, 3,
       [](std::int64_t rank, std::int64_t t, std::int64_t i) { return (rank + t + 2 * i) % 8; }},
      {"all to one expert", 4, 1, [](std::int64_t, std::int64_t, std::int64_t) { return 5; }},
      {"none to the last rank", 5, 2,
       [](std::int64_t, std::int64_t t, std::int64_t i) { return t % 2 + 2 * i; }},
      {"all experts", 3, 8, [](std::int64_t, std::int64_t, std::int64_t i) { return i; }},
      {"one token", 1, 2, [](std::int64_t, std::int64_t, std::int64_t i) { return 7 * i; }},
      {"no token", 0, 2, [](std::int64_t, std::int64_t, std::int64_t i) { return i; }},
      {"dropped", 4, 2,
       [](std::int64_t, std::int64_t t, std::int64_t i) { return t == 1 ? -1 - i : 2 * i + 1; }}};
  return all;
}

RoutedTokens route_by(const Case& one, std::int64_t rank) {
  at::Tensor experts = at::empty({one.tokens, one.topk}, at::TensorOptions().dtype(at::kInt));
  for (std::int64_t t = 0; t < one.tokens; ++t) {
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < one.topk; ++i) chosen.push_back(one.expert(rank, t, i));
    std::sort(chosen.begin(), chosen.end());
    for (std::int64_t i = 0; i < one.topk; ++i) experts[t][i] = chosen[static_cast<std::size_t>(i)];
  }
  return {.experts = experts,
          .probs = random_input({one.tokens, one.topk}, 1, static_cast<double>(rank)),
          .scores = {}};
}

/// Runs `body` on every rank of experts divided over ep × etp.
void on_expert_ranks(std::int64_t ep, std::int64_t etp,
                     const std::function<void(const Rank&)>& body) {
  const Mesh mesh({.ep = ep, .etp = etp}, ep * etp);
  run_rank_threads(ep * etp,
                   [&](Communicators& communicators) { body(make_rank(mesh, communicators)); },
                   {.timeout = std::chrono::seconds(20)});
}

MoeConfig config_of(const Case& one, TokenDispatcherType type) {
  MoeConfig config;
  config.num_experts = kExperts;
  config.router_topk = one.topk;
  config.token_dispatcher_type = type;
  return config;
}

/// Stands for expert e: multiplies by e + 1. Each rank of etp has an equal part of the result.
at::Tensor scale_of_experts(const DispatchedTokens& tokens, const Rank& rank) {
  std::vector<double> scales;
  for (std::size_t e = 0; e < tokens.counts.size(); ++e) {
    const auto expert = rank.ep.rank * static_cast<std::int64_t>(tokens.counts.size()) +
                        static_cast<std::int64_t>(e);
    scales.insert(scales.end(), static_cast<std::size_t>(tokens.counts[e]),
                  static_cast<double>(expert + 1) / static_cast<double>(rank.etp.size));
  }
  return at::tensor(scales, at::TensorOptions().dtype(at::kDouble)).unsqueeze(1);
}

TEST(TokenDispatcher, TakesTokensToTheirExpertsAndBack) {
  for (const auto type :
       {TokenDispatcherType::alltoall, TokenDispatcherType::flex, TokenDispatcherType::allgather}) {
    for (const auto& [ep, etp] : {std::pair{1, 1}, {2, 1}, {4, 1}, {2, 2}, {1, 2}}) {
      for (const Case& one : cases()) {
        const std::string name = one.name + ", dispatcher " +
                                 std::to_string(static_cast<int>(type)) + ", ep " +
                                 std::to_string(ep) + ", etp " + std::to_string(etp);
        on_expert_ranks(ep, etp, [&](const Rank& rank) {
          const MoeConfig config = config_of(one, type);
          const TokenDispatcher dispatcher(config, rank);
          const RoutedTokens routed = route_by(one, rank.index);
          const at::Tensor x =
              random_input({one.tokens, kHidden}, 1, static_cast<double>(rank.index) * 3);
          const DispatchedTokens tokens =
              dispatcher.finish_dispatch(dispatcher.start_dispatch(x, routed, one.tokens));
          const at::Tensor results =
              tokens.rows * scale_of_experts(tokens, rank) * tokens.probs.unsqueeze(1);
          const at::Tensor y = dispatcher.finish_combine(dispatcher.start_combine(results, tokens));

          const at::Tensor factor = (routed.probs * (routed.experts + 1).clamp_min(0)).sum(1, true);
          EXPECT_LE(difference(y, x * factor), 1e-14) << name;
          const at::Tensor weights = random_input({one.tokens, kHidden}, 1, 7).detach();
          (y * weights).sum().backward();
          EXPECT_LE(difference(x.grad(), weights * factor), 1e-14) << name;
          EXPECT_LE(difference(routed.probs.grad(),
                               (weights * x).sum(1, true) * (routed.experts + 1).clamp_min(0)),
                    1e-14)
              << name;
        });
      }
    }
  }
}

/// Flex sends a token once to each rank that holds some of its experts, alltoall once for each
/// expert, allgather once to each rank.
TEST(TokenDispatcher, SendsWhatTheTheorySays) {
  const Case one = cases().front();
  for (const auto type :
       {TokenDispatcherType::alltoall, TokenDispatcherType::flex, TokenDispatcherType::allgather}) {
    on_expert_ranks(4, 1, [&](const Rank& rank) {
      const MoeConfig config = config_of(one, type);
      const TokenDispatcher dispatcher(config, rank);
      const RoutedTokens routed = route_by(one, rank.index);
      std::vector<std::int64_t> expected(4, 0);
      for (std::int64_t t = 0; t < one.tokens; ++t) {
        std::vector<std::int64_t> copies(4, 0);
        for (std::int64_t i = 0; i < one.topk; ++i) ++copies[routed.experts[t][i].item<int>() / 2];
        for (std::size_t to = 0; to < 4; ++to)
          expected[to] += type == TokenDispatcherType::allgather ? 1
                          : type == TokenDispatcherType::alltoall
                              ? copies[to]
                              : std::min<std::int64_t>(copies[to], 1);
      }
      const at::Tensor x = random_input({one.tokens, kHidden}).detach();
      const DispatchedTokens tokens =
          dispatcher.finish_dispatch(dispatcher.start_dispatch(x, routed, one.tokens));
      EXPECT_EQ(tokens.sent.in, expected) << "dispatcher " << static_cast<int>(type);
    });
  }
}

/// Returns the calls of all_to_all 'dispatch' on `axis`: all that was counted, if it is the only
/// one.
CommCount dispatch_count(const std::vector<CommCount>& rows, const std::string& axis) {
  CommCount dispatch;
  for (const CommCount& row : rows) {
    EXPECT_EQ(row.axis, axis) << row.operation << " " << row.what;
    if (row.what == "dispatch") dispatch = row;
  }
  return dispatch;
}

/// The ranks of etp-ep are also those of dp, dp-cp, world and ep. Each of two ranks sends 18
/// copies; counted by hand, 8 of them go to rank 0 and 10 to rank 1.
TEST(TokenDispatcher, TrafficCountsUnderTheAxisOfTheExperts) {
  const Case one = cases().front();
  const MoeConfig config = config_of(one, TokenDispatcherType::alltoall);
  run_rank_threads(2, [&](Communicators& communicators) {
    const Rank rank = make_rank(Mesh({.ep = 2}, 2), communicators);
    const TokenDispatcher dispatcher(config, rank);
    const RoutedTokens routed = route_by(one, rank.index);
    const at::Tensor x = random_input({one.tokens, kHidden});
    communicators.counters().take();
    const DispatchedTokens tokens =
        dispatcher.finish_dispatch(dispatcher.start_dispatch(x, routed, one.tokens));
    const at::Tensor y = dispatcher.finish_combine(dispatcher.start_combine(tokens.rows, tokens));
    const std::int64_t row_bytes = kHidden * static_cast<std::int64_t>(sizeof(double)),
                       rows = rank.index == 0 ? 18 : 20;  // the larger of sent and received
    const CommCount forward = dispatch_count(communicators.counters().take(), "etp-ep");
    EXPECT_EQ(forward.operation, "all_to_all");
    EXPECT_EQ(forward.calls, 1);
    EXPECT_EQ(forward.bytes, rows * row_bytes);
    EXPECT_GT(forward.exposed_ms, 0.0);
    y.sum().backward();
    const CommCount backward = dispatch_count(communicators.counters().take(), "etp-ep");
    EXPECT_EQ(backward.calls, 1);
    EXPECT_EQ(backward.bytes, rows * row_bytes);
    all_reduce_(rank.dp, at::zeros({1}), "gradients");
    EXPECT_EQ(communicators.counters().take().at(0).axis, "dp");
  });
}

}  // namespace
}  // namespace megatron
