// Checks that a schedule completes, by running it without times.
#include <vector>

#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate_passes.h"

namespace megatron {
namespace {

/// Lets every rank run as far as it can, repeatedly. A step that a rank may run stays runnable
/// whatever other ranks do. One order therefore decides for all: either all complete, or none can.
class DeadlockCheck {
 public:
  explicit DeadlockCheck(const Schedule& schedule)
      : schedule_(schedule),
        position_(schedule.num_ranks),
        awaited_(schedule.num_ranks, kNothing),
        sent_(2 * schedule.num_stages() * schedule.num_microbatches) {}

  std::optional<std::string> problem() {
    for (std::int64_t rank = 0; rank < schedule_.num_ranks; ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const std::int64_t rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
    for (std::int64_t rank = 0; rank < schedule_.num_ranks; ++rank) {
      if (awaited_[rank] != kNothing) return describe(rank);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::int64_t kNothing = -1;
  using Steps = std::vector<ScheduleStep>;

  const Steps& steps(std::int64_t rank) const { return schedule_.ranks[rank]; }

  /// Returns a number that identifies the content of a message, from the receiver's side.
  std::int64_t key(std::int64_t rank, const ScheduleStep& receive) const {
    const std::int64_t place =
        schedule_.stage_of(rank, receive.chunk) * schedule_.num_microbatches + receive.microbatch;
    return 2 * place + (receive.kind == StepKind::recv_backward ? 1 : 0);
  }

  void advance(std::int64_t rank) {
    while (position_[rank] < steps(rank).size()) {
      const ScheduleStep& step = steps(rank)[position_[rank]];
      if (is_message(step.kind)) {
        post(rank, step);
      } else if (!may_start(rank)) {
        return;
      }
      position_[rank] += step.joins_next ? 2 : 1;
    }
  }

  void post(std::int64_t rank, const ScheduleStep& step) {
    if (step.kind != StepKind::send_forward && step.kind != StepKind::send_backward) return;
    const std::optional<MessageEndpoint> end = matching_end(schedule_, rank, step);
    const std::int64_t sent = key(end->rank, end->step);
    sent_[sent] = true;
    if (awaited_[end->rank] != sent) return;
    awaited_[end->rank] = kNothing;
    ready_.push_back(end->rank);
  }

  /// Returns whether the current step of a rank, or the joined pair, has received its inputs, and
  /// records the missing one.
  bool may_start(std::int64_t rank) {
    const std::size_t first = position_[rank];
    for (std::size_t i = first; i <= first + (steps(rank)[first].joins_next ? 1 : 0); ++i) {
      const std::optional<ScheduleStep> receive = receive_of(steps(rank)[i]);
      if (!receive || !matching_end(schedule_, rank, *receive)) continue;
      const std::int64_t awaited = key(rank, *receive);
      if (sent_[awaited]) continue;
      awaited_[rank] = awaited;
      return false;
    }
    return true;
  }

  std::string describe(std::int64_t rank) const {
    const std::int64_t stage = awaited_[rank] / 2 / schedule_.num_microbatches;
    const StepKind kind =
        awaited_[rank] % 2 == 0 ? StepKind::recv_forward : StepKind::recv_backward;
    const ScheduleStep receive{
        kind, static_cast<std::int32_t>(awaited_[rank] / 2 % schedule_.num_microbatches),
        static_cast<std::int32_t>(schedule_.chunk_of(stage))};
    const MessageEndpoint sender = *matching_end(schedule_, rank, receive);
    return at_step(schedule_, rank, static_cast<std::int64_t>(position_[rank])) +
           ": waits forever for " + name_of(sender.step) + " of rank " +
           std::to_string(sender.rank) + ", which itself waits in " +
           at_step(schedule_, sender.rank, static_cast<std::int64_t>(position_[sender.rank]));
  }

  const Schedule& schedule_;
  std::vector<std::size_t> position_;
  std::vector<std::int64_t> awaited_;
  std::vector<bool> sent_;
  std::vector<std::int64_t> ready_;
};

}  // namespace

std::optional<std::string> validate_no_deadlock(const Schedule& schedule) {
  return DeadlockCheck(schedule).problem();
}

}  // namespace megatron
