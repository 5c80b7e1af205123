// What tests of Membership share: a leader whose clock the test sets, and how ranks of a host end.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/control/membership.h"

namespace megatron {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = Decision::Kind;

/// A leader whose clock the test sets.
class Leader {
 public:
  explicit Leader(MembershipOptions options) : membership_(std::move(options)) {}
  std::string join(const std::string& id, std::optional<std::int64_t> node_rank = {},
                   std::int64_t num_ranks = 1) {
    std::string refusal = membership_.join({id, "host-" + id, node_rank, num_ranks}, now_);
    membership_.decide(now_);
    return refusal;
  }
  void end(const std::string& id, const HostResult& result) {
    membership_.end(id, membership_.decide(now_).round, result, now_);
  }
  void end_all(const HostResult& result) {
    for (const std::string& id : decide().members) end(id, result);
  }
  void lose(const std::string& id) { membership_.lose(id, now_); }
  void leave(const std::string& id) { membership_.leave(id); }
  const Decision& decide(milliseconds later = milliseconds(0)) {
    now_ += later;
    return membership_.decide(now_);
  }
  std::string agent_of(std::int64_t node_rank) const { return membership_.agent_of(node_rank); }
  void end(const std::string& id, std::int64_t round, const HostResult& result) {
    membership_.end(id, round, result, now_);
  }
  std::vector<std::string> awaited() const { return membership_.awaited_members(); }
  std::string waiting() const { return membership_.waiting_text(); }

 private:
  Membership membership_;
  Membership::Time now_{seconds(1000)};
};

inline const HostResult kKilled{137, "rank 1 was killed by signal 9 (SIGKILL)"};
inline const HostResult kOther{1, "rank 0 ended with exit code 1", /*is_consequence=*/true};
inline const HostResult kAsked{
    .code = 143, .description = "rank 0 ended with exit code 143", .stopped_on_request = true};
inline const HostResult kSignalled{.code = 143,
                                   .description = "rank 0 ended with exit code 143",
                                   .was_signalled = true,
                                   .stopped_on_request = true};

inline MembershipOptions elastic(std::int64_t least, std::int64_t most) {
  return {.min_hosts = least, .max_hosts = most, .max_restarts = 5, .can_grow = true};
}

}  // namespace megatron
