// Simulates the steps of context_exchange.h.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/schedules/context_exchange.h"

namespace megatron {
namespace {

struct Message {
  std::optional<double> sent_s, received_s;  ///< when each side has posted it
  double bytes = 0;
};

/// The messages of a directed pair of ranks. They arrive in the order in which they were posted.
struct Link {
  std::vector<Message> messages;
  std::size_t num_sends = 0, num_receives = 0;  ///< posted
  std::size_t waited_sends = 0, waited_receives = 0;

  Message& at(std::size_t index) {
    if (index >= messages.size()) messages.resize(index + 1);
    return messages[index];
  }
  /// Returns when message `index` has arrived; nothing while a side has not posted it.
  std::optional<double> arrival_s(std::size_t index, const ContextSpeed& speed) const {
    double free_s = 0;
    for (std::size_t i = 0; i <= index; ++i) {
      if (i >= messages.size() || !messages[i].sent_s || !messages[i].received_s)
        return std::nullopt;
      free_s = std::max({free_s, *messages[i].sent_s, *messages[i].received_s}) + speed.latency_s +
               messages[i].bytes / speed.bytes_per_s;
    }
    return free_s;
  }
};

class ContextSimulator {
 public:
  ContextSimulator(const ContextSteps& steps, const ContextExchange& exchange,
                   const RingStepSeconds& attention_s, const ContextSpeed& speed)
      : steps_(steps), exchange_(exchange), attention_s_(attention_s), speed_(speed) {
    const std::size_t ranks = steps.size();
    result_.spans.resize(ranks);
    for (std::vector<double>* times : {&result_.busy_s, &result_.exposed_s, &result_.end_s})
      times->assign(ranks, 0);
    collectives_.resize(ranks);
  }

  ContextSimulation run() {
    for (bool is_stuck = false; !is_stuck;) {
      is_stuck = true;
      for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
        while (advance(rank)) is_stuck = false;
      }
    }
    for (std::size_t rank = 0; rank < steps_.size(); ++rank)
      MEGATRON_CHECK(result_.spans[rank].size() == steps_[rank].size(), "rank ", rank,
                     " of cp waits for ever in step ", result_.spans[rank].size());
    return std::move(result_);
  }

 private:
  /// Runs the next step of a rank. Returns false when there is none or it must wait for others.
  bool advance(std::size_t rank) {
    auto& spans = result_.spans[rank];
    if (spans.size() == steps_[rank].size()) return false;
    const ContextStep& step = steps_[rank][spans.size()];
    const double now = result_.end_s[rank];
    const std::optional<double> end = end_of(step, rank, now);
    if (!end) return false;
    spans.push_back({now, *end});
    result_.end_s[rank] = *end;
    (step.kind == ContextStepKind::attention ? result_.busy_s : result_.exposed_s)[rank] +=
        *end - now;
    return true;
  }

  std::optional<double> end_of(const ContextStep& step, std::size_t rank, double now) {
    const auto here = static_cast<std::int64_t>(rank);
    Link& out = links_[{here, step.peer}];
    Link& in = links_[{step.peer, here}];
    switch (step.kind) {
      case ContextStepKind::attention:
        return now + attention_s_[rank][static_cast<std::size_t>(step.ring_step)];
      case ContextStepKind::send: {
        Message& message = out.at(out.num_sends++);
        message.sent_s = now;
        message.bytes = step.bytes;
        return now;
      }
      case ContextStepKind::receive:
        in.at(in.num_receives++).received_s = now;
        return now;
      case ContextStepKind::wait_send:
        return wait_for(out, out.waited_sends, now);
      case ContextStepKind::wait_receive:
        return wait_for(in, in.waited_receives, now);
      case ContextStepKind::collective:
        return join(step, rank, now);
    }
    throw InternalError("an unknown step of context parallelism");
  }

  std::optional<double> wait_for(const Link& link, std::size_t& num_waited, double now) const {
    const std::optional<double> arrival = link.arrival_s(num_waited, speed_);
    if (!arrival) return std::nullopt;
    ++num_waited;
    return std::max(now, *arrival);
  }

  /// A rank of a group comes to its next collective. All of them leave it at the same time.
  std::optional<double> join(const ContextStep& step, std::size_t rank, double now) {
    const auto size =
        static_cast<std::size_t>(exchange_.gathers ? exchange_.ranks : exchange_.head_ranks);
    auto& [number, has_come] = collectives_[rank];
    auto& arrivals = arrivals_[{rank / size, number}];
    if (!std::exchange(has_come, true)) arrivals.push_back(now);
    if (arrivals.size() < size) return std::nullopt;
    ++number;
    has_come = false;
    return *std::ranges::max_element(arrivals) + speed_.latency_s + step.bytes / speed_.bytes_per_s;
  }

  const ContextSteps& steps_;
  const ContextExchange& exchange_;
  const RingStepSeconds& attention_s_;
  const ContextSpeed& speed_;
  ContextSimulation result_;
  std::map<std::pair<std::int64_t, std::int64_t>, Link> links_;
  struct NextCollective {
    std::size_t number = 0;
    bool has_come = false;
  };
  std::vector<NextCollective> collectives_;  ///< of each rank
  /// By group and number of the collective.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> arrivals_;
};

}  // namespace

double ContextSimulation::makespan_s() const { return *std::ranges::max_element(end_s); }

RingStepSeconds attention_seconds(const ContextSteps& steps, double flops_per_s) {
  RingStepSeconds seconds;
  for (const auto& rank : steps) {
    auto& own = seconds.emplace_back();
    for (const ContextStep& step : rank) {
      if (step.kind == ContextStepKind::attention) own.push_back(step.flops / flops_per_s);
    }
  }
  return seconds;
}

ContextSimulation simulate(const ContextSteps& steps, const ContextExchange& exchange,
                           const RingStepSeconds& attention_s, const ContextSpeed& links) {
  return ContextSimulator(steps, exchange, attention_s, links).run();
}

}  // namespace megatron
