// Whether a schedule comes to its end, found by running it without times.
#include <vector>

#include "megatron/schedules/routes.h"
#include "megatron/schedules/validate_parts.h"

namespace megatron {
namespace {

/// Lets every rank run as far as it can, again and again. What a rank may do next never goes away by what another does, so one order shows what all
/// would: either all come to their end, or none can.
class Run {
 public:
  explicit Run(const Schedule& schedule)
      : x_schedule(schedule),
        x_position(schedule.num_ranks),
        x_awaited(schedule.num_ranks, kNothing),
        x_sent(2 * schedule.num_stages() * schedule.num_microbatches) {}

  std::optional<std::string> problem() {
    for (std::int64_t rank = 0; rank < x_schedule.num_ranks; ++rank) x_ready.push_back(rank);
    while (!x_ready.empty()) {
      const std::int64_t rank = x_ready.back();
      x_ready.pop_back();
      advance(rank);
    }
    for (std::int64_t rank = 0; rank < x_schedule.num_ranks; ++rank) {
      if (x_awaited[rank] != kNothing) return describe(rank);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::int64_t kNothing = -1;
  using Steps = std::vector<ScheduleStep>;

  const Steps& steps(std::int64_t rank) const { return x_schedule.ranks[rank]; }

  /// A number for what a message carries, from the receiver's side.
  std::int64_t key(std::int64_t rank, const ScheduleStep& receive) const {
    const std::int64_t place = x_schedule.stage_of(rank, receive.chunk) * x_schedule.num_microbatches + receive.microbatch;
    return 2 * place + (receive.kind == StepKind::recv_backward ? 1 : 0);
  }

  void advance(std::int64_t rank) {
    while (x_position[rank] < steps(rank).size()) {
      const ScheduleStep& step = steps(rank)[x_position[rank]];
      if (is_message(step.kind)) {
        post(rank, step);
      } else if (!may_start(rank)) {
        return;
      }
      x_position[rank] += step.joins_next ? 2 : 1;
    }
  }

  void post(std::int64_t rank, const ScheduleStep& step) {
    if (step.kind != StepKind::send_forward && step.kind != StepKind::send_backward) return;
    const std::optional<MessageEnd> end = other_end(x_schedule, rank, step);
    const std::int64_t sent = key(end->rank, end->step);
    x_sent[sent] = true;
    if (x_awaited[end->rank] != sent) return;
    x_awaited[end->rank] = kNothing;
    x_ready.push_back(end->rank);
  }

  /// Whether the step at which a rank stands, or the pair, has all that it receives; notes what is missing.
  bool may_start(std::int64_t rank) {
    const std::size_t first = x_position[rank];
    for (std::size_t i = first; i <= first + (steps(rank)[first].joins_next ? 1 : 0); ++i) {
      const std::optional<ScheduleStep> receive = receive_of(steps(rank)[i]);
      if (!receive || !other_end(x_schedule, rank, *receive)) continue;
      const std::int64_t awaited = key(rank, *receive);
      if (x_sent[awaited]) continue;
      x_awaited[rank] = awaited;
      return false;
    }
    return true;
  }

  std::string describe(std::int64_t rank) const {
    const std::int64_t stage = x_awaited[rank] / 2 / x_schedule.num_microbatches;
    const StepKind kind = x_awaited[rank] % 2 == 0 ? StepKind::recv_forward : StepKind::recv_backward;
    const ScheduleStep receive{kind, static_cast<std::int32_t>(x_awaited[rank] / 2 % x_schedule.num_microbatches),
                               static_cast<std::int32_t>(x_schedule.chunk_of(stage))};
    const MessageEnd sender = *other_end(x_schedule, rank, receive);
    return at_step(x_schedule, rank, static_cast<std::int64_t>(x_position[rank])) + ": waits forever for " + name_of(sender.step) + " of rank " +
           std::to_string(sender.rank) + ", which waits itself in " +
           at_step(x_schedule, sender.rank, static_cast<std::int64_t>(x_position[sender.rank]));
  }

  const Schedule& x_schedule;
  std::vector<std::size_t> x_position;
  std::vector<std::int64_t> x_awaited;
  std::vector<bool> x_sent;
  std::vector<std::int64_t> x_ready;
};

}  // namespace

std::optional<std::string> problem_of_waiting(const Schedule& schedule) { return Run(schedule).problem(); }

}  // namespace megatron
