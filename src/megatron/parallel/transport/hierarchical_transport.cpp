#include "megatron/parallel/transport/hierarchical_transport.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

namespace megatron {
namespace {

/// Up to this size, two whole all-reduces are faster than four steps.
constexpr std::int64_t kSmallBytes = 64 << 10;

CommCall with(const CommCall& call, CommOperation operation, const at::Tensor& out,
              const at::Tensor& in, std::int64_t peer = 0) {
  return {.operation = operation,
          .out = out,
          .in = in,
          .what = call.what,
          .reduce = call.reduce,
          .peer = peer,
          .axis = call.axis,
          .layer = call.layer};
}

}  // namespace

std::vector<std::vector<std::int64_t>> even_host_groups(
    const std::vector<std::int64_t>& ranks, const std::vector<std::int64_t>& host_leader) {
  std::map<std::int64_t, std::vector<std::int64_t>> host_groups;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    host_groups[host_leader[static_cast<std::size_t>(ranks[member])]].push_back(
        static_cast<std::int64_t>(member));
  }
  std::vector<std::vector<std::int64_t>> members;
  for (auto& [first, place] : host_groups) members.push_back(std::move(place));
  const std::size_t count = members.front().size();
  const bool even = std::all_of(members.begin(), members.end(),
                                [&](const auto& place) { return place.size() == count; });
  if (!even || count == 1 || members.size() == 1) return {};
  return members;
}

void HierarchicalTransport::run(const CommCall& call) {
  const at::NoGradGuard no_grad;
  if (call.is_uneven()) return levels_.flat->run(call);
  dispatch(call);
}

void HierarchicalTransport::cancel() {
  for (const auto& transport : {levels_.intra_host, levels_.inter_host, levels_.flat})
    transport->cancel();
}

void HierarchicalTransport::all_reduce(const CommCall& call) {
  const at::Tensor flat = call.out.view({-1});
  const std::int64_t share =
      static_cast<std::int64_t>(flat.nbytes()) <= kSmallBytes ? 0 : flat.numel() / per_host();
  const at::Tensor even = flat.narrow(0, 0, share * per_host()),
                   rest = flat.narrow(0, share * per_host(), flat.numel() - share * per_host());
  const at::Tensor part = even.narrow(0, levels_.index * share, share);
  if (share > 0) {
    levels_.intra_host->run(with(call, CommOperation::reduce_scatter, part, even));
    levels_.inter_host->run(with(call, CommOperation::all_reduce, part, part));
    levels_.intra_host->run(with(call, CommOperation::all_gather, even, part));
  }
  if (rest.numel() > 0 || share == 0) {
    levels_.intra_host->run(with(call, CommOperation::all_reduce, rest, rest));
    levels_.inter_host->run(with(call, CommOperation::all_reduce, rest, rest));
  }
}

void HierarchicalTransport::all_gather(const CommCall& call) {
  const std::int64_t elements = call.in.numel();
  const at::Tensor across = at::empty({hosts() * elements}, call.in.options()),
                   all = at::empty({per_host() * hosts() * elements}, call.in.options());
  levels_.inter_host->run(with(call, CommOperation::all_gather, across, call.in));
  levels_.intra_host->run(with(call, CommOperation::all_gather, all, across));
  const at::Tensor from = all.view({per_host(), hosts(), elements}),
                   to = call.out.view({per_host() * hosts(), elements});
  for (std::int64_t host = 0; host < hosts(); ++host) {
    for (std::int64_t index = 0; index < per_host(); ++index)
      to[member(host, index)].copy_(from[index][host]);
  }
}

void HierarchicalTransport::reduce_scatter(const CommCall& call) {
  const std::int64_t elements = call.out.numel();
  const at::Tensor sorted = at::empty({per_host(), hosts(), elements}, call.in.options()),
                   part = at::empty({hosts(), elements}, call.in.options());
  const at::Tensor from = call.in.view({per_host() * hosts(), elements});
  for (std::int64_t host = 0; host < hosts(); ++host) {
    for (std::int64_t index = 0; index < per_host(); ++index)
      sorted[index][host].copy_(from[member(host, index)]);
  }
  levels_.intra_host->run(with(call, CommOperation::reduce_scatter, part, sorted));
  levels_.inter_host->run(with(call, CommOperation::reduce_scatter, call.out, part));
}

/// Broadcasts between hosts among the ranks of the root's index, then within every host.
void HierarchicalTransport::broadcast(const CommCall& call) {
  std::int64_t root_host = 0, root_index = 0;
  for (std::int64_t host = 0; host < hosts(); ++host) {
    for (std::int64_t index = 0; index < per_host(); ++index) {
      if (member(host, index) == call.peer) root_host = host, root_index = index;
    }
  }
  if (levels_.index == root_index)
    levels_.inter_host->run(with(call, CommOperation::broadcast, call.out, call.in, root_host));
  levels_.intra_host->run(with(call, CommOperation::broadcast, call.out, call.in, root_index));
}

void HierarchicalTransport::barrier(const CommCall& call) {
  levels_.intra_host->run(call);
  levels_.inter_host->run(call);
  levels_.intra_host->run(call);
}

void HierarchicalTransport::message(const CommCall& call) {
  const std::vector<std::int64_t>& neighbours =
      levels_.members[static_cast<std::size_t>(levels_.host)];
  const auto place = std::find(neighbours.begin(), neighbours.end(), call.peer);
  if (place == neighbours.end()) return levels_.flat->run(call);
  levels_.intra_host->run(
      with(call, call.operation, call.out, call.in, place - neighbours.begin()));
}

}  // namespace megatron
