#include "megatron/reliability/replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <random>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

using Times = std::priority_queue<double, std::vector<double>, std::greater<>>;

double next_of(const Times& times) { return times.empty() ? kNever : times.top(); }

struct Save {
  double progress_s = 0, durable_at = 0;
};

/// What a recovery begins with.
struct Outage {
  double detection_s = 0, reaction_s = 0;
};

/// Progress is counted in seconds of training at full speed.
class Replay {
 public:
  Replay(const ReplayedRun& run, const FailureMix& mix, const RecoveryPolicy& policy,
         std::uint64_t seed)
      : run_(run),
        mix_(mix),
        policy_(policy),
        random_(seed),
        alive_(run.hosts + policy.spare_hosts),
        num_replicas_(run.hosts / run.hosts_per_replica),
        replicas_(num_replicas_),
        copy_share_(policy.copy_s / (run.step_s + policy.copy_s)) {
    result_.failures.resize(mix.classes.size());
    draw_failure();
  }

  ReplayResult replay() {
    while (now_ < run_.seconds) train();
    result_.effective = progress_s_ / run_.seconds;
    for (double& lost : result_.lost) lost /= run_.seconds;
    return result_;
  }

 private:
  double& lost(LostTime cause) { return result_.lost[static_cast<std::size_t>(cause)]; }
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  std::int64_t hosts_in_use() const { return replicas_ * run_.hosts_per_replica; }

  /// The times between failures have no memory, so the next one may be drawn anew at any moment.
  void draw_failure() {
    const double rate = mix_.rate_of_gpu() * run_.failure_rate_scale *
                        static_cast<double>(hosts_in_use() * run_.gpus_per_host);
    failure_at_ = rate > 0 ? now_ - std::log1p(-uniform()) / rate : kNever;
  }

  /// Returns the class of the failure that happens now.
  const FailureClass& take_failure() {
    double total = 0;
    for (const FailureClass& each : mix_.classes) total += each.count;
    double at = uniform() * total;
    std::size_t i = 0;
    while (i + 1 < mix_.classes.size() && at >= mix_.classes[i].count)
      at -= mix_.classes[i++].count;
    ++result_.failures[i];
    draw_failure();
    return mix_.classes[i];
  }

  void lose_host(const FailureClass& failure) {
    if (failure.host_out_s <= 0) return;
    --alive_;
    returns_.push(now_ + failure.host_out_s);
  }

  void take_returned_hosts() {
    for (; next_of(returns_) <= now_; returns_.pop())
      alive_ = std::min(alive_ + 1, run_.hosts + policy_.spare_hosts);
  }

  /// Returns how much is to be trained until the next save.
  double unsaved_s() const {
    return std::max(0.0, saves_.back().progress_s + run_.checkpoint_interval_s - progress_s_);
  }

  /// Trains until something happens.
  void train() {
    const double slow = slow_notices_.empty() ? 1 : run_.slow_speed,
                 speed = slow * static_cast<double>(replicas_) / static_cast<double>(num_replicas_),
                 corruption_notice = corruption_ ? corruption_->durable_at : kNever;
    // What was due during an outage is due now.
    const double save_at = now_ + unsaved_s() / (speed * (1 - copy_share_)),
                 until =
                     std::max(now_, std::min({run_.seconds, failure_at_, save_at, next_of(returns_),
                                              next_of(slow_notices_), corruption_notice}));
    const double seconds = until - now_;
    now_ = until;
    progress_s_ += seconds * speed * (1 - copy_share_);
    lost(LostTime::saving) += seconds * speed * copy_share_;
    lost(LostTime::slower) += seconds * (1 - speed);
    if (now_ >= run_.seconds) return;
    if (now_ >= failure_at_) return fail(take_failure());
    if (now_ >= corruption_notice) return undo_corruption();
    if (now_ >= next_of(slow_notices_)) return replace_slow_host();
    if (now_ >= save_at) return save();
    take_returned_hosts();
    if (policy_.can_shrink && possible_replicas() > replicas_) recover({});
  }

  void fail(const FailureClass& failure) {
    switch (failure.sign) {
      case FailureSign::slowdown:
        slow_notices_.push(now_ + policy_.slowdown_s);
        slow_class_ = &failure;
        return;
      case FailureSign::corruption:
        if (!corruption_) corruption_ = {progress_s_, now_ + policy_.corruption_s};
        corrupt_class_ = &failure;
        return;
      case FailureSign::announced:
        return leave_in_order(failure);
      case FailureSign::crash:
      case FailureSign::hang:
        lose_host(failure);
        lose_steps();
        return recover(outage_of(failure));
    }
  }

  Outage outage_of(const FailureClass& failure) const {
    return {failure.sign == FailureSign::hang ? policy_.hang_s : policy_.crash_s,
            policy_.operator_s};
  }

  void save() {
    if (!spend(run_.save_s, LostTime::saving)) return fail(*interruption_);
    saves_.push_back({progress_s_, now_ + run_.durable_s});
  }

  /// Saves and starts again without the host.
  void leave_in_order(const FailureClass& failure) {
    if (!spend(run_.save_s, LostTime::saving)) {
      lose_host(failure);
      return fail(*interruption_);
    }
    saves_.push_back({progress_s_, now_});
    lose_host(failure);
    recover({});
  }

  void replace_slow_host() {
    slow_notices_.pop();
    leave_in_order(*slow_class_);
  }

  /// Goes back to a save from before the corruption.
  void undo_corruption() {
    while (saves_.size() > 1 && saves_.back().progress_s > corruption_->progress_s)
      saves_.pop_back();
    lose_host(*corrupt_class_);
    load_newest_save();
    corruption_.reset();
    recover({});
  }

  void go_back_to(double progress_s) {
    lost(LostTime::repeated) += progress_s_ - progress_s;
    progress_s_ = progress_s;
    if (corruption_ && progress_s_ <= corruption_->progress_s) corruption_.reset();
  }

  void load_newest_save() {
    while (saves_.size() > 1 && saves_.back().durable_at > now_) saves_.pop_back();
    if (saves_.back().progress_s < progress_s_) go_back_to(saves_.back().progress_s);
  }

  /// Loses the step that is being computed if a peer has the state, else all since the last save.
  void lose_steps() {
    if (!policy_.has_peer_copies) return load_newest_save();
    go_back_to(std::max(0.0, progress_s_ - uniform() * run_.step_s));
  }

  std::int64_t possible_replicas() const {
    return std::min(alive_, run_.hosts) / run_.hosts_per_replica;
  }

  /// Starts the run again, as often as failures interrupt that.
  void recover(Outage outage) {
    ++result_.restarts;
    while (now_ < run_.seconds) {
      if (spend(outage.detection_s, LostTime::detection) &&
          spend(outage.reaction_s, LostTime::reaction) && wait_for_hosts() &&
          spend(policy_.start_s + policy_.load_s, LostTime::restart))
        break;
      const FailureClass& failure = *interruption_;
      lose_host(failure);
      // The second host may be the one with the copy of the first.
      const double share = 1 / static_cast<double>(std::max<std::int64_t>(1, run_.hosts - 1));
      if (policy_.has_peer_copies && failure.host_out_s > 0 && uniform() < share)
        load_newest_save();
      outage = failure.sign == FailureSign::announced ? Outage{} : outage_of(failure);
    }
    take_returned_hosts();
    const std::int64_t before = replicas_;
    replicas_ = policy_.can_shrink ? std::max<std::int64_t>(1, possible_replicas()) : num_replicas_;
    if (replicas_ != before) draw_failure();
  }

  /// Returns false if a failure interrupts the wait.
  bool wait_for_hosts() {
    const std::int64_t needed = policy_.can_shrink ? run_.hosts_per_replica : run_.hosts;
    const double allocated_at = now_ + policy_.allocation_s;
    for (take_returned_hosts(); alive_ < needed; take_returned_hosts()) {
      if (now_ >= run_.seconds) return true;
      const double until = std::min(allocated_at, next_of(returns_));
      if (!spend(until - now_, LostTime::waiting)) return false;
      if (now_ >= allocated_at) alive_ = std::max(alive_, needed);
    }
    return true;
  }

  /// Lets the time pass. Returns false if a failure interrupts it, which `interruption_` then is.
  /// Hosts that are slow or compute wrongly do not disturb a run that does not compute.
  bool spend(double seconds, LostTime cause) {
    const double end = std::min(now_ + seconds, run_.seconds);
    while (failure_at_ < end) {
      lost(cause) += failure_at_ - now_;
      now_ = failure_at_;
      const FailureClass& failure = take_failure();
      if (failure.sign == FailureSign::slowdown || failure.sign == FailureSign::corruption)
        continue;
      interruption_ = &failure;
      return false;
    }
    lost(cause) += end - now_;
    now_ = end;
    return true;
  }

  const ReplayedRun& run_;
  const FailureMix& mix_;
  const RecoveryPolicy& policy_;
  std::mt19937_64 random_;
  ReplayResult result_;
  double now_ = 0, progress_s_ = 0;
  std::int64_t alive_;  ///< hosts in use and spare ones
  std::int64_t num_replicas_, replicas_;
  double copy_share_;  ///< of a step's time
  double failure_at_ = 0;
  std::vector<Save> saves_{{}};  ///< the first is the start of the run
  Times returns_, slow_notices_;
  std::optional<Save> corruption_;  ///< where it began, and when it is noticed
  const FailureClass *slow_class_ = nullptr, *corrupt_class_ = nullptr, *interruption_ = nullptr;
};

}  // namespace

ReplayResult replay_run(const ReplayedRun& run, const FailureMix& mix, const RecoveryPolicy& policy,
                        std::uint64_t seed) {
  MEGATRON_CHECK(run.hosts_per_replica >= 1 && run.hosts % run.hosts_per_replica == 0,
                 "hosts are no multiple of those of a replica");
  return Replay(run, mix, policy, seed).replay();
}

}  // namespace megatron
