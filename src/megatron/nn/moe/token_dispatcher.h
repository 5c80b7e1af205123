// Takes tokens to the ranks that hold their experts, and the results back. Three kinds differ in
// what travels, not in the result:
//
//   alltoall: a copy of the token for each of its experts.
//   flex: one copy for each rank that holds some of its experts, as DeepEP sends them; that rank
//     adds their results before it returns them.
//   allgather: one copy for every rank.
//
// Results of a token are added along a binary tree over the experts (halving_codes()), whose
// subtrees are the experts of a rank. So in float32 a layout that differs in ep alone has the same
// bits. In 16 bits the sums that flex and allgather return are rounded once more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/config/moe_config.h"
#include "megatron/nn/moe/expert_order.h"
#include "megatron/ops/routing.h"
#include "megatron/ops/row_exchange.h"
#include "megatron/ops/row_map.h"

namespace megatron {

struct Rank;

/// Tokens on their way to experts.
struct DispatchedTokens {
  at::Tensor rows = {};                   ///< [rows, h], sorted by the experts of this rank
  at::Tensor probs = {};                  ///< [rows], differentiable
  std::vector<std::int64_t> counts = {};  ///< rows of each expert of this rank
  RowMap home = {};                       ///< tokens → rows sent
  RowMap local = {};  ///< rows received → rows of the experts; unused on one rank
  RowCounts sent = {};
};

class TokenDispatcher {
 public:
  /// `config` and `rank` must outlive the dispatcher.
  TokenDispatcher(const MoeConfig& config, const Rank& rank);

  /// Says which rank has which expert. Only alltoall sends to experts in any order: the ranks that
  /// flex and allgather send to add the results of their experts, which must be neighbours.
  void place_experts(const ExpertOrder& order);

  /// Tokens that have been sent: between the two calls the rank can compute something else.
  struct Pending {
    DispatchedTokens tokens = {};
    PendingRows rows = {};
    at::Tensor probs = {}, experts = {};  ///< received
    std::int64_t least_rows = 0;          ///< rows that each expert has at least
  };
  /// Sends the tokens x [T, h]. `total` is the number of tokens of the whole microbatch, for the
  /// experts' capacity. Collective over etp-ep, in backward too.
  Pending start_dispatch(const at::Tensor& x, const RoutedTokens& routed, std::int64_t total) const;
  DispatchedTokens finish_dispatch(Pending pending) const;

  /// Results that are on their way back.
  struct PendingResults {
    PendingRows rows;
    RowMap home;
  };
  /// Returns the experts' results y [rows, h] to the tokens' ranks. Collective over etp-ep, in
  /// backward too.
  PendingResults start_combine(const at::Tensor& y, const DispatchedTokens& tokens) const;
  /// Returns the sum of each token's results, [T, h].
  at::Tensor finish_combine(PendingResults results) const;

 private:
  /// Returns the rows that each expert has at least, with --moe-pad-expert-input-to-capacity.
  std::int64_t padded_rows(std::int64_t total) const;
  /// Returns the number of copies of a token that are sent, or on one rank those of its experts:
  /// with flex, at most that. The meta device takes it for the number, with every expert and every
  /// rank getting equally many.
  std::int64_t copies_of_token() const;
  /// Returns the rows that this rank sends, or on one rank those of its experts.
  SlotMap home_map(const at::Tensor& experts, std::int64_t least_rows) const;
  at::Tensor sent_experts(const SlotMap& home, const at::Tensor& experts) const;
  bool sends_copies_for_experts() const {
    return config_.token_dispatcher_type == TokenDispatcherType::alltoall;
  }

  const MoeConfig& config_;
  const Rank& rank_;
  std::int64_t num_local_;                  ///< experts of each rank of ep
  std::vector<std::int64_t> places_;        ///< of each expert in the order of the ranks of ep
  std::vector<std::uint64_t> codes_;        ///< of all experts
  std::vector<std::uint64_t> slot_codes_;   ///< of the slots of home_map()
  std::vector<std::uint64_t> local_codes_;  ///< of this rank's experts
};

}  // namespace megatron
