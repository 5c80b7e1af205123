#include "megatron/parallel/shared_memory/spin_wait.h"

#include <algorithm>
#include <thread>

#include "megatron/base/format.h"
#include "megatron/parallel/rank_list.h"

namespace megatron {
std::string time_text(std::chrono::milliseconds time) {
  return format("%g s", static_cast<double>(time.count()) / 1000.0);
}

std::string mismatch_text(const CommCall& call, const GroupInfo& group_info, const CallHeader& mine,
                          std::int64_t member, const CallHeader& theirs) {
  const auto rank_of = [&](std::int64_t index) {
    return std::to_string(group_info.ranks[static_cast<std::size_t>(index)]);
  };
  return describe_with_place(call) + ": ranks disagree: rank " + rank_of(group_info.rank) +
         " is in " + describe(mine) + ", rank " + rank_of(member) + " in " + describe(theirs);
}

SpinWait::SpinWait(GroupInfo group_info, std::shared_ptr<HostStatus> host_status,
                   std::chrono::milliseconds timeout)
    : group_info_(std::move(group_info)),
      host_status_(std::move(host_status)),
      timeout_(timeout),
      may_spin_(group_info_.size() <= std::thread::hardware_concurrency()) {}

void SpinWait::fail(const CommCall& call, const std::string& error) const {
  throw CommError(describe_with_place(call) + ": " + error);
}

void SpinWait::record_spin(int turns) const {
  if (turns > kMinSpins && ++successful_spins_ % 16 == 0)
    short_sleeps_needed_ = std::max(short_sleeps_needed_ / 2, kMinShortSleeps);
}

void SpinWait::record_sleep(std::chrono::steady_clock::duration time) const {
  if (spins_ == kMaxSpins) {
    spins_ = kMinSpins;
    short_sleeps_needed_ = std::min(2 * short_sleeps_needed_, kMaxShortSleeps);
  }
  short_sleeps_ = time < std::chrono::microseconds(500) ? short_sleeps_ + 1 : 0;
  if (short_sleeps_ < short_sleeps_needed_) return;
  short_sleeps_ = 0;
  spins_ = kMaxSpins;
}

std::string SpinWait::wait_error(Watch& watch, const std::vector<std::int64_t>& missing) const {
  if (host_status_->failed()) return host_status_->failure();
  if (cancelled_) return "cancelled, because this rank is ending";
  std::vector<std::int64_t> absent, left, dead;
  for (const std::int64_t member : missing) {
    const std::int64_t rank = world_rank(member);
    absent.push_back(rank);
    if (host_status_->has_left(rank)) left.push_back(rank);
    if (host_status_->is_dead(rank)) dead.push_back(rank);
  }
  if (!dead.empty()) {
    host_status_->fail(ranks_text(dead) + " died");
    return host_status_->failure();
  }
  if (!left.empty()) return ranks_text(left) + (left.size() == 1 ? " has ended" : " have ended");
  const std::int64_t own = world_rank(group_info_.rank);
  if (watch.shown) {
    watch.shown->update(absent);
  } else {
    watch.shown.emplace(host_status_->waits(), own, watch.call, absent);
  }
  host_status_->waits().publish(own);
  const std::chrono::milliseconds waited = watch.timer.elapsed();
  if (waited < watch.extended_to.value_or(timeout_)) return {};
  TimedOutRank waiter{own, absent, timeout_};
  if (watch.extended_to) waiter.waited = std::chrono::round<std::chrono::seconds>(waited);
  const std::string report = report_hang(*host_status_, waiter);
  if (report.empty()) {
    watch.extended_to = waited + decision_interval(timeout_);
    return {};
  }
  host_status_->fail(report);
  return host_status_->failure();
}

}  // namespace megatron
