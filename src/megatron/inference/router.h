// Chooses the replica of a model that serves a request, by load and by prefix: the one that has the
// fewest tokens to compute when those of prefixes that it has computed before are not counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

namespace megatron {

struct RequestRouterOptions {
  std::size_t num_replicas = 1;
  std::int64_t block_size = 128;   ///< tokens in a block, as SchedulerOptions
  std::int64_t num_blocks = 1024;  ///< whose prefixes a replica may still have; 0: no prefix cache
};

/// It only guesses what a replica's prefix cache has.
class RequestRouter {
 public:
  explicit RequestRouter(const RequestRouterOptions& options)
      : options_(options), replicas_(options.num_replicas) {}

  struct Route {
    std::size_t replica = 0;
    std::int64_t load = 0;  ///< what the request adds to the replica's
  };
  /// Chooses a replica, the first of the best, and adds the request to its load. Each of its
  /// `num_texts` has up to `max_new_tokens`.
  Route choose(std::span<const std::int64_t> prompt, std::int64_t max_new_tokens,
               std::int64_t num_texts = 1);
  /// Subtracts a request that has ended from the load of its replica.
  void release(const Route& route) { replicas_.at(route.replica).load -= route.load; }

 private:
  using Prefixes = std::unordered_set<std::uint64_t>;  ///< hashes of blocks with all before them
  struct Replica {
    std::int64_t load = 0;  ///< tokens of its requests
    /// Those seen last, and before: the recent ones become the old ones when they are half of
    /// num_blocks.
    Prefixes recent = {}, old = {};
    bool has(std::uint64_t prefix) const { return recent.contains(prefix) || old.contains(prefix); }
  };
  void remember(Replica& replica, const std::vector<std::uint64_t>& prefixes) const;

  const RequestRouterOptions options_;
  std::vector<Replica> replicas_;
};

}  // namespace megatron
