// Checks one rank on its own: visits its steps once and records what has run for each chunk and
// microbatch.
#include <array>
#include <vector>

#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate_passes.h"

namespace megatron {
namespace {

constexpr std::array kAllKinds = {StepKind::forward,        StepKind::backward,
                                  StepKind::backward_input, StepKind::backward_weight,
                                  StepKind::send_forward,   StepKind::recv_forward,
                                  StepKind::send_backward,  StepKind::recv_backward};

using Problem = std::optional<std::string>;

class RankCheck {
 public:
  RankCheck(const Schedule& schedule, std::int64_t rank, bool with_backward)
      : schedule_(schedule),
        rank_(rank),
        with_backward_(with_backward),
        steps_(schedule.ranks[rank]),
        done_(schedule.num_chunks * schedule.num_microbatches),
        next_weight_(schedule.num_chunks) {
    for (std::int64_t chunk = 0; chunk < schedule.num_chunks; ++chunk)
      routes_.push_back(routes_of(static_cast<std::int32_t>(chunk)));
  }

  Problem problem() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (const char* wrong = wrong_with(i))
        return at_step(schedule_, rank_, static_cast<std::int64_t>(i)) + ": " + wrong;
      mark(steps_[i]);
    }
    return missing();
  }

 private:
  /// For one chunk: which neighbours are on other ranks, and the chunks of those on this rank.
  struct Routes {
    bool receives_forward = false, sends_forward = false, receives_backward = false,
         sends_backward = false;
    std::int64_t before = -1, behind = -1;
  };

  Routes routes_of(std::int32_t chunk) const {
    const auto travels = [&](StepKind kind) {
      return matching_end(schedule_, rank_, {kind, 0, chunk}).has_value();
    };
    const std::int64_t stage = schedule_.stage_of(rank_, chunk);
    const auto own_chunk = [&](std::int64_t other) {
      const bool is_own =
          other >= 0 && other < schedule_.num_stages() && schedule_.rank_of(other) == rank_;
      return is_own ? schedule_.chunk_of(other) : -1;
    };
    return {travels(StepKind::recv_forward),
            travels(StepKind::send_forward),
            travels(StepKind::recv_backward),
            travels(StepKind::send_backward),
            own_chunk(stage - 1),
            own_chunk(stage + 1)};
  }

  static unsigned bit(StepKind kind) { return 1U << static_cast<unsigned>(kind); }
  unsigned& done(std::int64_t chunk, std::int64_t microbatch) {
    return done_[chunk * schedule_.num_microbatches + microbatch];
  }
  bool has(std::int64_t chunk, std::int64_t microbatch, StepKind kind) {
    return (done(chunk, microbatch) & bit(kind)) != 0;
  }
  bool has_backward(std::int64_t chunk, std::int64_t microbatch) {
    return has(chunk, microbatch, StepKind::backward) ||
           has(chunk, microbatch, StepKind::backward_input);
  }

  void mark(const ScheduleStep& step) {
    done(step.chunk, step.microbatch) |= bit(step.kind);
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_weight)
      ++next_weight_[step.chunk];
  }

  const char* wrong_with(std::size_t index) {
    const ScheduleStep& step = steps_[index];
    if (step.chunk < 0 || step.chunk >= schedule_.num_chunks) return "there is no such chunk";
    if (step.microbatch < 0 || step.microbatch >= schedule_.num_microbatches)
      return "there is no such microbatch";
    if (!with_backward_ && !is_forward(step.kind)) return "an evaluation has no backward";
    if (has(step.chunk, step.microbatch, step.kind)) return "it has already run";
    if (step.joins_next) {
      if (const char* wrong = wrong_with_pair(index)) return wrong;
    }
    return is_message(step.kind) ? wrong_with_message(step) : wrong_with_computing(step);
  }

  const char* wrong_with_pair(std::size_t index) const {
    if (steps_[index].kind != StepKind::forward)
      return "only a forward can be joined with the next step";
    if (index + 1 == steps_.size() || !is_backward(steps_[index + 1].kind))
      return "it is joined with a step that is not a backward";
    if (steps_[index].microbatch == steps_[index + 1].microbatch)
      return "it is joined with a backward of its own microbatch, which needs it";
    return nullptr;
  }

  const char* wrong_with_computing(const ScheduleStep& step) {
    if (step.kind == StepKind::forward) return wrong_with_forward(step);
    if (is_backward(step.kind)) {
      if (const char* wrong = wrong_with_backward(step)) return wrong;
    } else if (!has(step.chunk, step.microbatch, StepKind::backward_input)) {
      return "its B has not run";
    }
    const bool is_in_order =
        step.kind == StepKind::backward_input || step.microbatch == next_weight_[step.chunk];
    return is_in_order ? nullptr : "the weight gradients of the chunk are not in microbatch order";
  }

  const char* wrong_with_forward(const ScheduleStep& step) {
    const Routes& routes = routes_[step.chunk];
    if (routes.receives_forward && !has(step.chunk, step.microbatch, StepKind::recv_forward))
      return "its input has not been received";
    if (routes.before >= 0 && !has(routes.before, step.microbatch, StepKind::forward))
      return "the previous stage on this rank has not run";
    return nullptr;
  }

  const char* wrong_with_backward(const ScheduleStep& step) {
    const Routes& routes = routes_[step.chunk];
    if (has_backward(step.chunk, step.microbatch)) return "its backward has already run";
    if (!has(step.chunk, step.microbatch, StepKind::forward)) return "its forward has not run";
    if (routes.receives_backward && !has(step.chunk, step.microbatch, StepKind::recv_backward))
      return "its output gradient has not been received";
    if (routes.behind >= 0 && !has_backward(routes.behind, step.microbatch))
      return "the backward of the next stage, on this rank, has not run";
    return nullptr;
  }

  const char* wrong_with_message(const ScheduleStep& step) {
    const Routes& routes = routes_[step.chunk];
    constexpr const char* kNowhere = "no message is needed there";
    switch (step.kind) {
      case StepKind::recv_forward:
        return routes.receives_forward ? nullptr : kNowhere;
      case StepKind::recv_backward:
        return routes.receives_backward ? nullptr : kNowhere;
      case StepKind::send_forward:
        if (!routes.sends_forward) return kNowhere;
        return has(step.chunk, step.microbatch, StepKind::forward)
                   ? nullptr
                   : "what it sends has not been computed";
      default:
        if (!routes.sends_backward) return kNowhere;
        return has_backward(step.chunk, step.microbatch) ? nullptr
                                                         : "what it sends has not been computed";
    }
  }

  /// Returns the first required step that the rank lacks.
  Problem missing() {
    for (std::int64_t chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
      for (std::int64_t microbatch = 0; microbatch < schedule_.num_microbatches; ++microbatch) {
        const unsigned lacking = expected(chunk, microbatch) & ~done(chunk, microbatch);
        for (const StepKind kind : kAllKinds) {
          if ((lacking & bit(kind)) == 0) continue;
          const ScheduleStep step{kind, static_cast<std::int32_t>(microbatch),
                                  static_cast<std::int32_t>(chunk)};
          return "rank " + std::to_string(rank_) + ", after its last step (" +
                 std::to_string(steps_.size()) + " steps): " + name_of(step) + " is missing";
        }
      }
    }
    return std::nullopt;
  }

  unsigned expected(std::int64_t chunk, std::int64_t microbatch) {
    const Routes& routes = routes_[chunk];
    unsigned kinds = bit(StepKind::forward);
    if (routes.receives_forward) kinds |= bit(StepKind::recv_forward);
    if (routes.sends_forward) kinds |= bit(StepKind::send_forward);
    if (!with_backward_) return kinds;
    const bool is_split = has(chunk, microbatch, StepKind::backward_input) ||
                          has(chunk, microbatch, StepKind::backward_weight);
    kinds |= is_split ? bit(StepKind::backward_input) | bit(StepKind::backward_weight)
                      : bit(StepKind::backward);
    if (routes.receives_backward) kinds |= bit(StepKind::recv_backward);
    if (routes.sends_backward) kinds |= bit(StepKind::send_backward);
    return kinds;
  }

  const Schedule& schedule_;
  const std::int64_t rank_;
  const bool with_backward_;
  const std::vector<ScheduleStep>& steps_;
  std::vector<Routes> routes_;
  std::vector<unsigned> done_;  ///< Per chunk and microbatch, one bit for each kind of step.
  std::vector<std::int64_t> next_weight_;
};

}  // namespace

std::optional<std::string> validate_rank_steps(const Schedule& schedule, std::int64_t rank,
                                               bool with_backward) {
  return RankCheck(schedule, rank, with_backward).problem();
}

}  // namespace megatron
