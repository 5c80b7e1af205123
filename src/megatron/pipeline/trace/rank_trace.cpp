#include "megatron/pipeline/trace/rank_trace.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/machine.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/comm.h"

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

void move(StepSpan& span, double seconds) {
  span.begin_s -= seconds;
  span.end_s -= seconds;
}

Json json_of(const TimedStep& timed) {
  Json fields = {static_cast<int>(timed.step.kind), timed.step.microbatch, timed.step.chunk,
                 timed.span.begin_s, timed.span.end_s};
  if (timed.posted_s) fields.push_back(*timed.posted_s);
  return fields;
}

TimedStep step_of(const Json& fields) {
  TimedStep timed{{static_cast<StepKind>(fields[0].get<int>()), fields[1].get<std::int32_t>(),
                   fields[2].get<std::int32_t>()},
                  {fields[3].get<double>(), fields[4].get<double>()}};
  if (fields.size() > 5) timed.posted_s = fields[5].get<double>();
  return timed;
}

Json json_of(const Activities& activities) {
  Json waits = Json::array(), ring_steps = Json::array();
  for (const CommWait& wait : activities.waits)
    waits.push_back({wait.axis, wait.operation, wait.what, wait.peer, wait.begin_s, wait.end_s});
  for (const RingStep& step : activities.ring_steps)
    ring_steps.push_back({step.axis, step.is_backward, step.step, step.source, step.num_blocks,
                          step.begin_s, step.end_s});
  return {{"waits", waits}, {"ring_steps", ring_steps}};
}

Activities activities_of(const Json& json) {
  Activities activities;
  for (const Json& fields : json["waits"])
    activities.waits.push_back({fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]});
  for (const Json& fields : json["ring_steps"])
    activities.ring_steps.push_back(
        {fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]});
  return activities;
}

Json json_of(const TracedIteration& iteration) {
  Json steps = Json::array(), phases = Json::array();
  for (const TimedStep& timed : iteration.steps) steps.push_back(json_of(timed));
  for (const TracedPhase& phase : iteration.phases)
    phases.push_back({phase.name, phase.span.begin_s, phase.span.end_s});
  return {{"iteration", iteration.iteration},
          {"num_microbatches", iteration.num_microbatches},
          {"steps", steps},
          {"phases", phases},
          {"activities", json_of(iteration.activities)}};
}

TracedIteration iteration_of(const Json& json) {
  TracedIteration iteration{.iteration = json["iteration"],
                            .num_microbatches = json["num_microbatches"],
                            .steps = {},
                            .phases = {},
                            .activities = activities_of(json["activities"])};
  for (const Json& fields : json["steps"]) iteration.steps.push_back(step_of(fields));
  for (const Json& fields : json["phases"])
    iteration.phases.push_back({fields[0], {fields[1], fields[2]}});
  return iteration;
}

}  // namespace

void align_to_rank_0_clock(RankTrace& trace) {
  const double seconds = trace.clock.seconds;
  for (TracedIteration& iteration : trace.iterations) {
    for (TimedStep& timed : iteration.steps) {
      move(timed.span, seconds);
      if (timed.posted_s) *timed.posted_s -= seconds;
    }
    for (TracedPhase& phase : iteration.phases) move(phase.span, seconds);
    for (CommWait& wait : iteration.activities.waits) {
      wait.begin_s -= seconds;
      wait.end_s -= seconds;
    }
    for (RingStep& step : iteration.activities.ring_steps) {
      step.begin_s -= seconds;
      step.end_s -= seconds;
    }
  }
}

std::string serialize(const RankTrace& trace) {
  Json iterations = Json::array();
  for (const TracedIteration& iteration : trace.iterations)
    iterations.push_back(json_of(iteration));
  return Json{{"place", {trace.rank, trace.pp, trace.dp, trace.cp, trace.tp}},
              {"clock", {trace.clock.seconds, trace.clock.accuracy}},
              {"cp_link", {trace.cp_link.latency_s, trace.cp_link.bytes_per_s}},
              {"iterations", iterations}}
      .dump();
}

RankTrace parse_rank_trace(const std::string& text) {
  const Json json = parse_json(text, "a rank's trace");
  const Json &place = json["place"], &clock = json["clock"], &link = json["cp_link"];
  RankTrace trace{.rank = place[0],
                  .pp = place[1],
                  .dp = place[2],
                  .cp = place[3],
                  .tp = place[4],
                  .clock = {clock[0], clock[1]},
                  .cp_link = {link[0], link[1]},
                  .iterations = {}};
  for (const Json& iteration : json["iterations"])
    trace.iterations.push_back(iteration_of(iteration));
  return trace;
}

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
