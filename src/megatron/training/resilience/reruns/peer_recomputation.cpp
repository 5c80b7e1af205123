#include "megatron/training/resilience/reruns/peer_recomputation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <bit>
#include <map>
#include <span>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

constexpr const char* kWhat = "microbatch of a replica";

std::int64_t checksum_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().cpu().contiguous();
  const std::span bytes(static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes());
  return std::bit_cast<std::int64_t>(checksum(bytes));
}

/// Lists the results of a pass in the order in which they were computed.
PassResults results_of(const OpTrace& trace, const ParamStore& weights) {
  PassResults results;
  const auto add = [&](const std::string& name, double number) {
    results.names.push_back(name);
    results.bits.push_back(std::bit_cast<std::int64_t>(number));
  };
  for (const OpRecord& op : trace.ops) {
    add("the output of " + op.op, op.output.rms);
    add("the output of " + op.op, op.output.max_abs);
  }
  add("the loss", trace.loss_sum);
  for (auto op = trace.ops.rbegin(); op != trace.ops.rend(); ++op) {
    add("the output's gradient of " + op->op, op->gradient ? op->gradient->rms : 0);
    add("the output's gradient of " + op->op, op->gradient ? op->gradient->max_abs : 0);
  }
  for (const Parameter* parameter : weights.parameters()) {
    if (!parameter->is_trained()) continue;
    results.names.push_back("the gradient of " + parameter->name());
    results.bits.push_back(checksum_of(parameter->grad()));
  }
  return results;
}

/// Sends `tensor` to the next replica and returns that of the previous one.
at::Tensor rotate(const Axis& dp, const at::Tensor& tensor) {
  const at::Tensor out = tensor.contiguous(), in = at::empty_like(out);
  const PendingWork sending = dp.comm->start_send(out, (dp.rank + 1) % dp.size, kWhat);
  dp.comm->recv(in, (dp.rank + dp.size - 1) % dp.size, kWhat);
  sending->wait();
  return in;
}

Microbatch rotate(const Axis& dp, const Microbatch& microbatch) {
  MEGATRON_CHECK(!microbatch.packed, "packed sequences of two replicas have no common shape");
  Microbatch previous = microbatch;
  for (auto& [name, tensor] : previous.tensors) tensor = rotate(dp, tensor);
  previous.sample_ordinals = rotate(dp, microbatch.sample_ordinals);
  return previous;
}

/// Returns the rank that is in two differing pairs, if it is the only one: it is wrong as often as
/// it computes. −1 when there is none.
std::int64_t rank_in_two_pairs(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
  std::map<std::int64_t, int> counts;
  for (const auto& [owner, peer] : pairs) {
    ++counts[owner];
    ++counts[peer];
  }
  std::int64_t found = -1;
  for (const auto& [rank, count] : counts) {
    if (count < 2) continue;
    if (found >= 0) return -1;
    found = rank;
  }
  return found;
}

/// Puts together what all ranks found: "<host>\n<rank of the owner>\n<difference>".
std::string differences_text(const std::vector<std::string>& found, bool has_third_replica) {
  std::vector<std::string> hosts;
  for (const std::string& text : found) hosts.push_back(text.substr(0, text.find('\n')));
  const auto place = [&](std::int64_t rank) {
    return "rank " + std::to_string(rank) + " (" + hosts[static_cast<std::size_t>(rank)] + ")";
  };
  std::string lines;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const std::string rest = found[rank].substr(hosts[rank].size() + 1);
    const std::size_t end = rest.find('\n');
    if (end + 1 == rest.size()) continue;
    const auto peer = static_cast<std::int64_t>(rank);
    const std::int64_t owner = std::stoll(rest.substr(0, end));
    pairs.emplace_back(owner, peer);
    lines += "\n  the first microbatch of " + place(owner) + " has other results on " +
             place(peer) + ": " + rest.substr(end + 1);
  }
  const std::int64_t suspect = has_third_replica ? rank_in_two_pairs(pairs) : -1;
  if (suspect >= 0) lines += "\n  " + place(suspect) + " is in both pairs: suspect its hardware";
  return lines;
}

}  // namespace

std::string first_difference(const PassResults& own, const std::vector<std::int64_t>& other_bits) {
  MEGATRON_CHECK(own.bits.size() == other_bits.size(), "two replicas recorded ", own.bits.size(),
                 " and ", other_bits.size(), " results of a microbatch");
  std::size_t first = own.bits.size(), count = 0;
  for (std::size_t i = own.bits.size(); i-- > 0;) {
    if (own.bits[i] == other_bits[i]) continue;
    first = i;
    ++count;
  }
  if (count == 0) return {};
  return own.names[first] + " is the first of " + std::to_string(count) + " of " +
         std::to_string(own.bits.size()) + " results to differ";
}

PeerVerdict recompute_on_peers(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch) {
  const Rank& rank = context.rank;
  if (rank.dp.size == 1) return {};
  const Microbatch theirs = rotate(rank.dp, batch.front());
  const auto compare = [&](bool records_ops) {
    const auto results = [&](const Microbatch& microbatch) {
      return results_of(trace_of_step(context, options, microbatch, records_ops), context.weights);
    };
    const at::Tensor own = at::tensor(results(batch.front()).bits, at::kLong);
    const at::Tensor there = rotate(rank.dp, own.to(rank.device)).cpu();
    const auto* bits = there.const_data_ptr<std::int64_t>();
    const PassResults again = results(theirs);
    return first_difference(again, {bits, bits + there.numel()});
  };
  std::string difference = compare(/*records_ops=*/false);
  const ObjectGroup world{rank.world, rank.device};
  if (all_reduce_max(world, {difference.empty() ? 0.0 : 1.0}, kWhat)[0] == 0) return {};
  if (const std::string op = compare(/*records_ops=*/true); !difference.empty())
    difference = op.empty() ? difference + ", but not when it ran again" : op;
  const std::int64_t previous = (rank.dp.rank + rank.dp.size - 1) % rank.dp.size;
  const std::int64_t owner = rank.dp.comm->ranks()[static_cast<std::size_t>(previous)];
  const std::vector<std::string> found =
      all_gather_strings(world, host_name() + "\n" + std::to_string(owner) + "\n" + difference);
  return {.differences = differences_text(found, rank.dp.size > 2),
          .suspect = {.microbatch = theirs,
                      .index = 0,
                      .num_microbatches = options.num_microbatches,
                      .gradient_scale = 1 / static_cast<double>(options.num_microbatches),
                      .is_here = !difference.empty()}};
}

}  // namespace megatron
