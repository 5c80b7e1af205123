#include "megatron/parallel/link_speed.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <vector>

#include "megatron/base/median.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

constexpr int kNumRounds = 5;
/// Smaller messages show the latency only.
constexpr std::int64_t kLeastMessageBytes = std::int64_t{4} << 20;

}  // namespace

double ring_message_seconds(const Axis& axis, const at::Tensor& out) {
  if (axis.size == 1) return 0;
  const char* const what = "measured message";
  const at::Tensor in = at::empty_like(out);
  std::vector<double> seconds;
  for (int round = 0; round < kNumRounds; ++round) {
    barrier(axis, what);
    const double begin_s = monotonic_seconds();
    const auto [sent, received] = exchange_around_ring(axis, out, in, what);
    received->wait();
    sent->wait();
    if (!out.is_cpu())
      c10::impl::VirtualGuardImpl(out.device().type()).synchronizeDevice(out.device().index());
    seconds.push_back(monotonic_seconds() - begin_s);
  }
  return median(std::move(seconds));
}

LinkSpeed measure_link(const Axis& axis, const at::Device& device, double bytes) {
  const auto seconds = [&](std::int64_t size) {
    return ring_message_seconds(
        axis, at::zeros({size}, at::TensorOptions().dtype(at::kByte).device(device)));
  };
  const auto size = std::max(static_cast<std::int64_t>(bytes), kLeastMessageBytes);
  const double latency_s = seconds(8), message_s = seconds(size);
  // Where ranks share cores, a short message can take longer than a long one.
  const double transfer_s = std::max(message_s - latency_s, message_s / 10);
  return {.latency_s = latency_s, .bytes_per_s = static_cast<double>(size) / transfer_s};
}

}  // namespace megatron
