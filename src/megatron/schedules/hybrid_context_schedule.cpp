// The blocks of 1, 2, 4, … ranks are the nodes of a binary tree. A rank computes the microbatches
// of the largest block that contains it, then those of the next smaller one, and so on down to its
// own: all ranks of a block have the same microbatches before it, and so reach it together.
#include "megatron/schedules/hybrid_context_schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "megatron/base/division.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

/// The search ends when the most loaded rank has this fraction more work than the mean.
constexpr double kGoodBalance = 0.01;
/// The fraction of the mean load by which dividing a sequence must shorten the step.
constexpr double kWorthDividing = 0.001;
/// Bounds the search: attempts times sequences.
constexpr std::int64_t kSearchEffort = 2'000'000;

using Indices = std::vector<std::int64_t>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// The sequences of each block of each size, and the load of each rank.
struct Assignment {
  std::vector<std::vector<Indices>> blocks;  ///< [log2 of the size][block]
  std::vector<double> loads;                 ///< of each rank
  double longest() const { return *std::ranges::max_element(loads); }
};

class Assigner {
 public:
  explicit Assigner(const HybridContextRequest& request)
      : request_(request), by_length_(request.lengths.size()) {
    while (largest_context_block(request.num_ranks) >> (num_levels_ - 1) > 1) ++num_levels_;
    std::iota(by_length_.begin(), by_length_.end(), 0);
    std::ranges::stable_sort(by_length_, [&](std::int64_t a, std::int64_t b) {
      return request_.lengths[at(a)] > request_.lengths[at(b)];
    });
    for (const std::int64_t length : request.lengths) {
      const std::int64_t ranks = fewest_ranks(length, request);
      MEGATRON_CHECK(ranks > 0, "a sequence of ", length, " tokens does not fit ",
                     request.num_ranks, " ranks of ", request.max_rows_per_rank, " rows");
      ranks_of_.push_back(ranks);
      mean_ += request.cost_of(length, ranks) * static_cast<double>(ranks);
    }
    mean_ /= static_cast<double>(request.num_ranks);
  }

  Assignment best() {
    Assignment best = assign();
    std::int64_t attempts = kSearchEffort / std::max<std::int64_t>(1, std::ssize(request_.lengths));
    while (best.longest() > (1 + kGoodBalance) * mean_ && improve(best, attempts)) {
    }
    return best;
  }

 private:
  /// Divides one more sequence of the most loaded rank over twice as many ranks if that makes the
  /// step shorter. Tries the longest sequences first.
  bool improve(Assignment& best, std::int64_t& attempts) {
    const std::int64_t rank = std::ranges::max_element(best.loads) - best.loads.begin();
    Indices candidates;
    for (std::int64_t level = 0; level + 1 < num_levels_; ++level) {
      const Indices& here = best.blocks[at(level)][at(rank >> level)];
      candidates.insert(candidates.end(), here.begin(), here.end());
    }
    std::ranges::stable_sort(candidates, std::greater<>(),
                             [&](std::int64_t i) { return request_.lengths[at(i)]; });
    for (const std::int64_t sequence : candidates) {
      if (attempts-- <= 0) return false;
      ranks_of_[at(sequence)] *= 2;
      Assignment other = assign();
      if (other.longest() < best.longest() - kWorthDividing * mean_) {
        best = std::move(other);
        return true;
      }
      ranks_of_[at(sequence)] /= 2;
    }
    return false;
  }

  /// Assigns sequences to blocks of the sizes in ranks_of_, longest first to the least loaded.
  Assignment assign() const {
    Assignment result;
    std::vector<double> loads(at(request_.num_ranks >> (num_levels_ - 1)), 0);
    result.blocks.resize(at(num_levels_));
    for (std::int64_t level = num_levels_ - 1; level >= 0; --level) {
      const std::int64_t size = std::int64_t{1} << level;
      result.blocks[at(level)].resize(loads.size());
      using Block = std::pair<double, std::int64_t>;  // load, index
      std::priority_queue<Block, std::vector<Block>, std::greater<>> least;
      for (std::size_t i = 0; i < loads.size(); ++i)
        least.emplace(loads[i], static_cast<std::int64_t>(i));
      for (const std::int64_t sequence : by_length_) {
        if (ranks_of_[at(sequence)] != size) continue;
        const auto [load, block] = least.top();
        least.pop();
        loads[at(block)] = load + request_.cost_of(request_.lengths[at(sequence)], size);
        result.blocks[at(level)][at(block)].push_back(sequence);
        least.emplace(loads[at(block)], block);
      }
      if (level == 0) break;
      std::vector<double> halves;
      for (const double load : loads) halves.insert(halves.end(), 2, load);
      loads = std::move(halves);
    }
    result.loads = std::move(loads);
    return result;
  }

  const HybridContextRequest& request_;
  std::int64_t num_levels_ = 1;  ///< sizes of blocks
  Indices by_length_, ranks_of_;
  double mean_ = 0;
};

/// Packs sequences of a block, longest first, into the first microbatch that has room.
std::vector<Indices> pack(const Indices& sequences, std::int64_t ranks,
                          const HybridContextRequest& request) {
  std::vector<Indices> bins;
  std::vector<std::int64_t> room;
  for (const std::int64_t sequence : sequences) {
    const std::int64_t rows =
        padded_length(request.lengths[at(sequence)], ranks, request.row_multiple) / ranks;
    auto found = std::ranges::find_if(room, [&](std::int64_t left) { return left >= rows; });
    if (found == room.end()) {
      bins.emplace_back();
      found = room.insert(room.end(), request.max_rows_per_rank);
    }
    bins[at(found - room.begin())].push_back(sequence);
    *found -= rows;
  }
  for (Indices& bin : bins) std::ranges::sort(bin);
  return bins;
}

/// Gives a rank with fewer microbatches as many as the others: halves its own largest ones, and
/// then adds empty ones.
void extend(std::vector<ContextMicrobatch>& own, std::int64_t count) {
  while (std::ssize(own) < count) {
    const auto splittable = [](const ContextMicrobatch& one) {
      return one.num_ranks == 1 ? one.sequences.size() : 0;
    };
    const auto largest = std::ranges::max_element(own, {}, splittable);
    if (largest == own.end() || splittable(*largest) < 2) break;
    Indices& all = largest->sequences;
    const auto middle = all.begin() + std::ssize(all) / 2;
    ContextMicrobatch half{largest->first_rank, 1, {middle, all.end()}};
    all.erase(middle, all.end());
    own.push_back(std::move(half));
  }
}

}  // namespace

double SequenceCost::of(std::int64_t length, std::int64_t ranks) const {
  const auto tokens = static_cast<double>(length), parts = static_cast<double>(ranks);
  const double attention = per_squared_token * tokens * tokens / parts,
               exchange = per_sent_token * tokens * (parts - 1) / parts;
  return per_token * tokens / parts + std::max(attention, exchange);
}

double HybridContextRequest::cost_of(std::int64_t length, std::int64_t ranks) const {
  const auto padding = static_cast<double>(padded_length(length, ranks, row_multiple) - length);
  return cost.of(length, ranks) + cost.per_token * padding / static_cast<double>(ranks);
}

std::int64_t largest_context_block(std::int64_t num_ranks) { return num_ranks & -num_ranks; }

std::int64_t padded_length(std::int64_t length, std::int64_t ranks, std::int64_t row_multiple) {
  return round_up(length,
                  ranks == 1 ? row_multiple : ranks * std::lcm(std::int64_t{2}, row_multiple));
}

std::int64_t fewest_ranks(std::int64_t length, const HybridContextRequest& request) {
  for (std::int64_t ranks = 1; ranks <= largest_context_block(request.num_ranks); ranks *= 2)
    if (padded_length(length, ranks, request.row_multiple) <= ranks * request.max_rows_per_rank)
      return ranks;
  return 0;
}

HybridContextSchedule make_hybrid_context_schedule(const HybridContextRequest& request) {
  const Assignment assignment = Assigner(request).best();
  HybridContextSchedule schedule{
      .ranks = {at(request.num_ranks), std::vector<ContextMicrobatch>()}};
  for (std::int64_t level = std::ssize(assignment.blocks) - 1; level >= 0; --level) {
    const std::int64_t size = std::int64_t{1} << level;
    for (std::int64_t block = 0; block < request.num_ranks / size; ++block) {
      for (Indices& bin : pack(assignment.blocks[at(level)][at(block)], size, request)) {
        const ContextMicrobatch microbatch{block * size, size, std::move(bin)};
        for (std::int64_t rank = block * size; rank < (block + 1) * size; ++rank)
          schedule.ranks[at(rank)].push_back(microbatch);
      }
    }
  }
  std::size_t count = 1;
  for (const auto& own : schedule.ranks) count = std::max(count, own.size());
  for (std::int64_t rank = 0; rank < request.num_ranks; ++rank) {
    auto& own = schedule.ranks[at(rank)];
    extend(own, static_cast<std::int64_t>(count));
    own.resize(count, {.first_rank = rank});
  }
  return schedule;
}

std::string check_hybrid_context_schedule(const HybridContextSchedule& schedule,
                                          const HybridContextRequest& request) {
  if (std::ssize(schedule.ranks) != request.num_ranks) return "wrong number of ranks";
  Indices times_computed(request.lengths.size(), 0);
  for (std::int64_t rank = 0; rank < request.num_ranks; ++rank) {
    const auto& own = schedule.ranks[at(rank)];
    if (std::ssize(own) != schedule.num_microbatches()) return "ranks with fewer microbatches";
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto& [first, ranks, sequences] = own[i];
      if (ranks < 1 || first % ranks != 0 || rank < first || rank >= first + ranks ||
          first + ranks > request.num_ranks)
        return "a block that does not hold its rank";
      if (schedule.ranks[at(first)][i] != own[i]) return "a block whose ranks disagree";
      std::int64_t rows = 0;
      for (const std::int64_t sequence : sequences) {
        rows += padded_length(request.lengths[at(sequence)], ranks, request.row_multiple) / ranks;
        if (rank == first) ++times_computed[at(sequence)];
      }
      if (rows > request.max_rows_per_rank) return "a microbatch with too many rows";
    }
  }
  return std::ranges::all_of(times_computed, [](std::int64_t times) { return times == 1; })
             ? ""
             : "a sequence that is not computed once";
}

double HybridContextTimes::imbalance() const {
  const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
  return sum > 0 ? step * static_cast<double>(busy.size()) / sum - 1 : 0;
}

HybridContextTimes simulate(const HybridContextSchedule& schedule,
                            const HybridContextRequest& request) {
  const auto num_ranks = std::ssize(schedule.ranks);
  HybridContextTimes times{.busy = std::vector<double>(at(num_ranks), 0)};
  std::vector<double> ready(at(num_ranks), 0);
  for (std::int64_t i = 0; i < schedule.num_microbatches(); ++i) {
    for (std::int64_t first = 0; first < num_ranks;) {
      const ContextMicrobatch& microbatch = schedule.ranks[at(first)][at(i)];
      const std::int64_t end = first + microbatch.num_ranks;
      double cost = 0;
      for (const std::int64_t sequence : microbatch.sequences) {
        const std::int64_t length = request.lengths[at(sequence)],
                           rows = padded_length(length, microbatch.num_ranks, request.row_multiple);
        cost += request.cost_of(length, microbatch.num_ranks);
        times.rows += rows;
        times.padding += rows - length;
      }
      const double start = *std::max_element(ready.begin() + first, ready.begin() + end);
      for (; first < end; ++first) {
        ready[at(first)] = start + cost;
        times.busy[at(first)] += cost;
      }
    }
  }
  times.step = *std::ranges::max_element(ready);
  return times;
}

HybridContextSummary summary_of(const HybridContextSchedule& schedule,
                                const HybridContextRequest& request) {
  const HybridContextTimes times = simulate(schedule, request);
  return {.num_sequences = std::ssize(request.lengths),
          .num_microbatches = schedule.num_microbatches(),
          .imbalance = times.imbalance(),
          .padding = times.rows > 0
                         ? static_cast<double>(times.padding) / static_cast<double>(times.rows)
                         : 0};
}

}  // namespace megatron
