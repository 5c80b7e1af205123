#include "megatron/schedules/position_runs.h"

#include <algorithm>
#include <optional>

namespace megatron {
namespace {

/// The sum of clamp(y, 0, count) over all integers y ≤ x.
double clamped_sum(double x, double count) {
  if (x <= 0) return 0;
  return x <= count ? x * (x + 1) / 2 : count * (count + 1) / 2 + (x - count) * count;
}

/// Returns the number of pairs whose key lies at most `distance` after its query: query q has
/// clamp(q + distance + 1 − keys.first, 0, keys.count) such keys.
double pairs_up_to(const PositionRun& queries, const PositionRun& keys, std::int64_t distance) {
  const auto count = static_cast<double>(keys.count);
  const auto first = static_cast<double>(queries.first + distance + 1 - keys.first);
  return clamped_sum(first + static_cast<double>(queries.count) - 1, count) -
         clamped_sum(first - 1, count);
}

/// Returns how far after a query the last key that it sees lies; nothing if there is no limit.
std::optional<std::int64_t> reach_to_the_right(const PositionMask& mask) {
  const std::int64_t window = mask.window[1];
  if (mask.causal) return window < 0 ? 0 : std::min<std::int64_t>(0, window);
  if (window < 0) return std::nullopt;
  return window;
}

/// Returns the part of a run that lies in chunk number `index`.
PositionRun part_in_chunk(const PositionRun& run, std::int64_t chunk, std::int64_t index) {
  const std::int64_t first = std::max(run.first, index * chunk);
  return {first, std::max<std::int64_t>(0, std::min(run.end(), (index + 1) * chunk) - first)};
}

}  // namespace

RunsOfRanks zigzag_runs(std::int64_t length, std::int64_t ranks, std::int64_t first) {
  if (ranks == 1) return {{{0, length}}};
  const std::int64_t chunks = 2 * ranks;
  const auto begin = [&](std::int64_t chunk) { return (chunk * length + first % chunks) / chunks; };
  const auto run = [&](std::int64_t chunk) {
    return PositionRun{begin(chunk), begin(chunk + 1) - begin(chunk)};
  };
  RunsOfRanks runs;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    runs.push_back({run(rank), run(chunks - 1 - rank)});
  return runs;
}

RunsOfRanks join_neighbours(const RunsOfRanks& runs, std::int64_t ranks) {
  RunsOfRanks groups;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    if (rank % static_cast<std::size_t>(ranks) == 0) groups.emplace_back();
    groups.back().insert(groups.back().end(), runs[rank].begin(), runs[rank].end());
  }
  return groups;
}

bool sees(const PositionRun& queries, const PositionRun& keys, const PositionMask& mask) {
  if (mask.chunk > 0) return visible_pairs(queries, keys, mask) > 0;
  if (mask.causal && keys.first >= queries.end()) return false;
  if (mask.window[0] >= 0 && keys.end() <= queries.first - mask.window[0]) return false;
  return mask.window[1] < 0 || keys.first < queries.end() + mask.window[1];
}

double visible_pairs(const PositionRun& queries, const PositionRun& keys,
                     const PositionMask& mask) {
  if (const std::int64_t chunk = mask.chunk; chunk > 0) {
    double pairs = 0;
    const PositionMask inside{.causal = mask.causal, .window = mask.window};
    for (std::int64_t i = queries.first / chunk; i * chunk < queries.end(); ++i)
      pairs +=
          visible_pairs(part_in_chunk(queries, chunk, i), part_in_chunk(keys, chunk, i), inside);
    return pairs;
  }
  const auto right = reach_to_the_right(mask);
  double pairs = right ? pairs_up_to(queries, keys, *right)
                       : static_cast<double>(queries.count) * static_cast<double>(keys.count);
  if (mask.window[0] >= 0) pairs -= pairs_up_to(queries, keys, -mask.window[0] - 1);
  return pairs;
}

}  // namespace megatron
