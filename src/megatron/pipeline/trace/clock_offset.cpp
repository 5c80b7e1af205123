#include "megatron/pipeline/trace/clock_offset.h"

#include <algorithm>
#include <limits>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/pipeline/step_recorder.h"

namespace megatron {
namespace {

constexpr int kNumBarriers = 16;

/// Returns the identity of the monotonic clock. Processes with equal values share it.
std::string clock_identity() {
  const std::string kernel = boot_id();
  return kernel.empty() ? host_name() : kernel;
}

std::vector<BarrierTimes> time_barriers(const ObjectGroup& group) {
  std::vector<BarrierTimes> rounds;
  for (int i = 0; i < kNumBarriers; ++i) {
    BarrierTimes& round = rounds.emplace_back();
    round.entered_s = monotonic_seconds();
    group.axis.comm->barrier("clocks");
    round.left_s = monotonic_seconds();
  }
  return rounds;
}

std::vector<BarrierTimes> barriers_of_first(const ObjectGroup& group,
                                            const std::vector<BarrierTimes>& ours) {
  std::vector<double> numbers;
  for (const BarrierTimes& round : ours)
    numbers.insert(numbers.end(), {round.entered_s, round.left_s});
  const std::vector<double> first = all_gather_numbers(group, numbers, "clocks").front();
  std::vector<BarrierTimes> rounds;
  for (std::size_t i = 0; i + 1 < first.size(); i += 2) rounds.push_back({first[i], first[i + 1]});
  return rounds;
}

}  // namespace

ClockOffset offset_between(const std::vector<BarrierTimes>& ours,
                           const std::vector<BarrierTimes>& theirs) {
  MEGATRON_CHECK(ours.size() == theirs.size() && !ours.empty(),
                 "the two ranks have different numbers of barriers: ", ours.size(), " and ",
                 theirs.size());
  double least = std::numeric_limits<double>::lowest(), most = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    least = std::max(least, ours[i].entered_s - theirs[i].left_s);
    most = std::min(most, ours[i].left_s - theirs[i].entered_s);
  }
  return {.seconds = (least + most) / 2, .accuracy = std::max(0.0, (most - least) / 2)};
}

ClockOffset clock_offset(const ObjectGroup& group) {
  const std::vector<std::string> clocks = all_gather_strings(group, clock_identity());
  if (std::ranges::all_of(clocks,
                          [&](const std::string& clock) { return clock == clocks.front(); }))
    return {};
  const std::vector<BarrierTimes> ours = time_barriers(group);
  const std::vector<BarrierTimes> theirs = barriers_of_first(group, ours);
  return clocks[static_cast<std::size_t>(group.axis.rank)] == clocks.front()
             ? ClockOffset{}
             : offset_between(ours, theirs);
}

}  // namespace megatron
