#include "megatron/parallel/transport/patience.h"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace megatron {
std::string time_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", static_cast<double>(time.count()) / 1000.0);
  return text;
}

std::string name_ranks(const std::vector<std::int64_t>& ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return names;
}

std::string disagreement(const CommCall& call, const GroupPlace& place, const CallHeader& mine, std::int64_t member, const CallHeader& theirs) {
  const auto rank_of = [&](std::int64_t index) { return std::to_string(place.ranks[static_cast<std::size_t>(index)]); };
  return describe(call) + " on " + place.name + ": ranks disagree: rank " + rank_of(place.rank) + " is in " + describe(mine) + ", rank " +
         rank_of(member) + " in " + describe(theirs);
}

Patience::Patience(GroupPlace place, std::shared_ptr<RankBoard> board, std::chrono::milliseconds timeout)
    : place_(std::move(place)), board_(std::move(board)), timeout_(timeout), may_spin_(place_.size() <= std::thread::hardware_concurrency()) {}

void Patience::fail(const CommCall& call, const std::string& trouble) const {
  throw CommError(describe(call) + " on " + place_.name + ": " + trouble);
}

void Patience::spun(int turns) const {
  if (turns > kFewSpins && ++good_spins_ % 16 == 0) proof_needed_ = std::max(proof_needed_ / 2, kLeastProof);
}

void Patience::slept(std::chrono::steady_clock::duration time) const {
  if (spins_ == kManySpins) {
    spins_ = kFewSpins;
    proof_needed_ = std::min(2 * proof_needed_, kMostProof);
  }
  short_sleeps_ = time < std::chrono::microseconds(500) ? short_sleeps_ + 1 : 0;
  if (short_sleeps_ < proof_needed_) return;
  short_sleeps_ = 0;
  spins_ = kManySpins;
}

std::string Patience::trouble_of(Watch& watch, const std::vector<std::int64_t>& missing) const {
  if (board_->failed()) return board_->failure();
  if (cancelled_) return "given up, because this rank is ending";
  std::vector<std::int64_t> absent, left, dead;
  for (const std::int64_t member : missing) {
    const std::int64_t rank = world_rank(member);
    absent.push_back(rank);
    if (board_->has_left(rank)) left.push_back(rank);
    if (board_->is_dead(rank)) dead.push_back(rank);
  }
  if (!dead.empty()) {
    board_->fail(name_ranks(dead) + " died");
    return board_->failure();
  }
  if (!left.empty()) return name_ranks(left) + (left.size() == 1 ? " has ended" : " have ended");
  const std::int64_t own = world_rank(place_.rank);
  if (watch.shown) {
    watch.shown->update(absent);
  } else {
    watch.shown.emplace(board_->waits(), own, watch.call, place_.name, absent);
  }
  board_->waits().publish(own);
  if (watch.timer.elapsed() < timeout_) return {};
  board_->fail(report_hang(*board_, {own, absent, timeout_}));
  return board_->failure();
}

}  // namespace megatron
