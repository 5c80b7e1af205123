// T tokens, h channels, k experts for each token, R ranks of etp-ep, L experts for each of them.
#include "megatron/nn/moe/token_dispatcher.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/full.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/moe/load_balancing.h"
#include "megatron/ops/differentiable.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

Tensors tensors_of(const RowMap& map) {
  return {map.source, map.choice, map.offsets, map.summands, map.folds};
}

RowMap map_of(const Tensors& saved) {
  return {.source = saved[0],
          .choice = saved[1],
          .offsets = saved[2],
          .summands = saved[3],
          .folds = saved[4]};
}

RowMap on_device(const RowMap& map, c10::Device device) {
  return {.source = map.source.to(device),
          .choice = map.choice.to(device),
          .offsets = map.offsets.to(device),
          .summands = map.summands.to(device),
          .folds = map.folds.to(device)};
}

/// gather_rows(); backward adds the gradients of the copies.
at::Tensor copy_rows(const at::Tensor& x, const RowMap& map) {
  Recording recording({.name = "CopyRowsBackward"}, {x});
  return recording.finish(gather_rows(x, map), tensors_of(map), [](BackwardPass& pass) -> Tensors {
    return {sum_rows(pass.gradients[0], map_of(pass.saved))};
  });
}

/// sum_rows(); backward copies the gradient to each summand.
at::Tensor add_rows(const at::Tensor& y, const RowMap& map) {
  Recording recording({.name = "AddRowsBackward"}, {y});
  return recording.finish(sum_rows(y, map), tensors_of(map), [](BackwardPass& pass) -> Tensors {
    return {gather_rows(pass.gradients[0], map_of(pass.saved))};
  });
}

/// gather_choices() of values [sources, c].
at::Tensor copy_choices(const at::Tensor& values, const RowMap& map) {
  Recording recording({.name = "CopyChoicesBackward"}, {values});
  return recording.finish(gather_choices(values, map), tensors_of(map),
                          [choices = values.size(1)](BackwardPass& pass) -> Tensors {
                            return {sum_choices(pass.gradients[0], map_of(pass.saved), choices)};
                          });
}

/// Returns the sums of each run of `length` counts.
std::vector<std::int64_t> run_sums(const std::vector<std::int64_t>& counts, std::int64_t length) {
  std::vector<std::int64_t> sums;
  for (auto first = counts.begin(); first != counts.end(); first += length)
    sums.push_back(std::accumulate(first, first + length, std::int64_t{0}));
  return sums;
}

at::Tensor tensor_of(const std::vector<std::int64_t>& numbers) {
  return at::tensor(numbers, at::TensorOptions().dtype(at::kLong));
}

std::vector<std::int64_t> vector_of(const at::Tensor& numbers) {
  const auto* first = numbers.const_data_ptr<std::int64_t>();
  return {first, first + numbers.numel()};
}

}  // namespace

TokenDispatcher::TokenDispatcher(const MoeConfig& config, const Rank& rank)
    : config_(config),
      rank_(rank),
      num_local_(config.num_experts / rank.ep.size),
      codes_(halving_codes(config.num_experts)) {
  place_experts(ascending_order(config.num_experts));
}

void TokenDispatcher::place_experts(const ExpertOrder& order) {
  places_.resize(order.size());
  for (std::size_t place = 0; place < order.size(); ++place)
    places_[static_cast<std::size_t>(order[place])] = static_cast<std::int64_t>(place);
  MEGATRON_CHECK(sends_copies_for_experts() || std::ranges::is_sorted(order),
                 "the dispatcher adds the results of a rank's experts, which must be neighbours");
  const auto codes_of = [&](std::int64_t first, std::int64_t count) {
    std::vector<std::uint64_t> codes;
    for (std::int64_t place = first; place < first + count; ++place)
      codes.push_back(codes_[static_cast<std::size_t>(order[static_cast<std::size_t>(place)])]);
    return codes;
  };
  local_codes_ = codes_of(rank_.ep.rank * num_local_, num_local_);
  slot_codes_.clear();
  for (std::int64_t member = 0; member < rank_.etp_ep.size; ++member) {
    const auto codes =
        codes_of(member / rank_.etp.size * num_local_, sends_copies_for_experts() ? num_local_ : 1);
    slot_codes_.insert(slot_codes_.end(), codes.begin(), codes.end());
  }
}

std::int64_t TokenDispatcher::padded_rows(std::int64_t total) const {
  if (!config_.pad_expert_input_to_capacity) return 0;
  const std::int64_t microbatches =
      (rank_.etp_ep.size + rank_.tp_cp.size - 1) / rank_.tp_cp.size;  // that meet in the group
  return expert_capacity(config_, total) * microbatches;
}

std::int64_t TokenDispatcher::copies_of_token() const {
  const std::int64_t k = config_.router_topk;
  if (rank_.etp_ep.size == 1) return k;
  switch (config_.token_dispatcher_type) {
    case TokenDispatcherType::alltoall:
      return k * rank_.etp.size;
    case TokenDispatcherType::allgather:
      return rank_.etp_ep.size;
    default:
      return std::min(k, rank_.ep.size) * rank_.etp.size;
  }
}

/// A slot is an expert on one of its ranks (alltoall) or a rank. Copies for the ranks of etp follow
/// each other, so that their parts are added first.
SlotMap TokenDispatcher::home_map(const at::Tensor& experts, std::int64_t least_rows) const {
  const std::int64_t tokens = experts.size(0), k = experts.size(1), etp = rank_.etp.size,
                     ranks = rank_.etp_ep.size;
  if (experts.is_meta())
    return even_map(tokens, tokens * copies_of_token(),
                    std::ssize(ranks == 1 ? codes_ : slot_codes_), ranks == 1 ? least_rows : 0,
                    experts.device());
  if (ranks == 1) return sort_by_slot(experts, codes_, least_rows);
  const bool by_expert = sends_copies_for_experts();
  const std::int64_t width = by_expert ? k * etp : ranks;
  const at::Tensor slots = at::full({tokens, width}, -1, experts.options());
  const auto* chosen = experts.const_data_ptr<std::int32_t>();
  auto* slot = slots.mutable_data_ptr<std::int32_t>();
  for (std::int64_t t = 0; t < tokens; ++t, slot += width) {
    if (config_.token_dispatcher_type == TokenDispatcherType::allgather) {
      std::iota(slot, slot + ranks, 0);
      continue;
    }
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int32_t expert = chosen[t * k + i];
      if (expert < 0) continue;
      const std::int64_t place = places_[static_cast<std::size_t>(expert)];
      for (std::int64_t part = 0; part < etp; ++part) {
        const std::int64_t member = place / num_local_ * etp + part;
        if (by_expert) {
          slot[i * etp + part] =
              static_cast<std::int32_t>(member * num_local_ + place % num_local_);
        } else {
          slot[member] = static_cast<std::int32_t>(member);
        }
      }
    }
  }
  return sort_by_slot(slots, slot_codes_);
}

/// Returns for each row sent the experts of its destination that it goes to, by their index there:
/// int32 [rows, k], −1 for others. Used when a row goes to several experts.
at::Tensor TokenDispatcher::sent_experts(const SlotMap& home, const at::Tensor& experts) const {
  const at::Tensor rows = gather_rows(experts, home.map);
  if (rows.is_meta()) return rows;
  const at::Tensor member = at::repeat_interleave(tensor_of(home.counts)).unsqueeze(1),
                   first = at::floor_divide(member, rank_.etp.size) * num_local_;
  const at::Tensor index = rows - first;
  return at::where((index >= 0).logical_and(index < num_local_).logical_and(rows >= 0), index, -1)
      .to(at::kInt)
      .contiguous();
}

TokenDispatcher::Pending TokenDispatcher::start_dispatch(const at::Tensor& x,
                                                         const RoutedTokens& routed,
                                                         std::int64_t total) const {
  const at::Tensor experts = routed.experts.is_meta() ? routed.experts : routed.experts.cpu();
  Pending pending{.least_rows = padded_rows(total)};
  SlotMap home = home_map(experts, pending.least_rows);
  DispatchedTokens& tokens = pending.tokens;
  tokens.home = on_device(home.map, x.device());
  const at::Tensor copies = copy_rows(x, tokens.home);
  const Axis& axis = rank_.etp_ep;
  if (axis.size == 1) {
    tokens.counts = std::move(home.counts);
    pending.rows.rows = copies;
    pending.probs = copy_choices(routed.probs, tokens.home);
    return pending;
  }
  const auto num_slots = static_cast<std::int64_t>(home.counts.size()) / axis.size;
  const std::vector<std::int64_t> arriving =
      vector_of(all_to_all(axis, tensor_of(home.counts), "expert counts"));
  tokens.sent = {.out = run_sums(arriving, num_slots), .in = run_sums(home.counts, num_slots)};
  pending.rows = start_exchange_rows(axis, copies, tokens.sent, "dispatch");
  if (sends_copies_for_experts()) {
    const at::Tensor probs =
        rank_.etp.size == 1 ? routed.probs : routed.probs.repeat_interleave(rank_.etp.size, 1);
    pending.probs =
        exchange_rows(axis, copy_choices(probs, tokens.home), tokens.sent, "dispatch probs")
            .unsqueeze(1);
    pending.experts = at::repeat_interleave(tensor_of(arriving));
    pending.experts = pending.experts.remainder(num_local_).to(at::kInt).unsqueeze(1);
  } else {
    pending.probs =
        exchange_rows(axis, copy_rows(routed.probs, tokens.home), tokens.sent, "dispatch probs");
    pending.experts =
        all_to_all(axis, sent_experts(home, experts), "dispatch experts", tokens.sent);
  }
  return pending;
}

DispatchedTokens TokenDispatcher::finish_dispatch(Pending pending) const {
  DispatchedTokens tokens = std::move(pending.tokens);
  const at::Tensor arrived = finish_exchange_rows(std::move(pending.rows));
  if (rank_.etp_ep.size == 1) {
    tokens.rows = arrived;
    tokens.probs = pending.probs;
    return tokens;
  }
  SlotMap local = arrived.is_meta()
                      ? even_map(arrived.size(0),
                                 tokens.home.num_sources() * config_.router_topk * rank_.etp.size,
                                 num_local_, pending.least_rows, arrived.device())
                      : sort_by_slot(pending.experts, local_codes_, pending.least_rows);
  tokens.local = on_device(local.map, arrived.device());
  tokens.counts = std::move(local.counts);
  tokens.rows = copy_rows(arrived, tokens.local);
  tokens.probs = copy_choices(pending.probs, tokens.local);
  return tokens;
}

TokenDispatcher::PendingResults TokenDispatcher::start_combine(
    const at::Tensor& y, const DispatchedTokens& tokens) const {
  if (rank_.etp_ep.size == 1) return {.rows = {.rows = y}, .home = tokens.home};
  return {.rows = start_exchange_rows(rank_.etp_ep, add_rows(y, tokens.local),
                                      {.out = tokens.sent.in, .in = tokens.sent.out}, "combine"),
          .home = tokens.home};
}

at::Tensor TokenDispatcher::finish_combine(PendingResults results) const {
  return add_rows(finish_exchange_rows(std::move(results.rows)), results.home);
}

}  // namespace megatron
