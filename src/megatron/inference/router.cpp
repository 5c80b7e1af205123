#include "megatron/inference/router.h"

#include <algorithm>
#include <utility>

#include "megatron/inference/block_pool.h"

namespace megatron {
namespace {

/// New tokens that a text is taken to have at most, since few texts reach a high limit.
constexpr std::int64_t kExpectedNewTokens = 256;

/// Returns a hash of each full block with those before it.
std::vector<std::uint64_t> prefixes_of(std::span<const std::int64_t> prompt, std::size_t size) {
  std::vector<std::uint64_t> prefixes;
  for (; prompt.size() >= size; prompt = prompt.subspan(size))
    prefixes.push_back(prefix_hash(prefixes.empty() ? 0 : prefixes.back(), prompt.first(size)));
  return prefixes;
}

}  // namespace

RequestRouter::Route RequestRouter::choose(std::span<const std::int64_t> prompt,
                                           std::int64_t max_new_tokens, std::int64_t num_texts) {
  std::vector<std::uint64_t> prefixes;
  if (options_.num_blocks > 0)
    prefixes = prefixes_of(prompt, static_cast<std::size_t>(options_.block_size));
  Route best;
  std::int64_t least = -1;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const Replica& replica = replicas_[i];
    const auto unknown = std::ranges::find_if_not(
        prefixes, [&](std::uint64_t prefix) { return replica.has(prefix); });
    const std::int64_t num_found = (unknown - prefixes.begin()) * options_.block_size,
                       load = std::ssize(prompt) - num_found +
                              num_texts * std::min(max_new_tokens, kExpectedNewTokens);
    if (least >= 0 && replica.load + load >= least) continue;
    least = replica.load + load;
    best = {.replica = i, .load = load};
  }
  replicas_.at(best.replica).load += best.load;
  remember(replicas_[best.replica], prefixes);
  return best;
}

void RequestRouter::remember(Replica& replica, const std::vector<std::uint64_t>& prefixes) const {
  for (const std::uint64_t prefix : prefixes) {
    replica.recent.insert(prefix);
    if (2 * std::ssize(replica.recent) >= options_.num_blocks)
      replica.old = std::exchange(replica.recent, {});
  }
}

}  // namespace megatron
