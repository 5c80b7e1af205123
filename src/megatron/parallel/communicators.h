// The groups of a rank: made when first asked for, one per distinct list of ranks, none of size 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

class FailureNotice;

class Communicators {
 public:
  virtual ~Communicators() = default;
  virtual std::int64_t rank() const = 0;  ///< in the world
  virtual std::int64_t world_size() const = 0;
  /// The group of `ranks` (ascending, this rank among them) under the name of the axis that first
  /// asked; null for one rank. Collective over them.
  virtual std::shared_ptr<Comm> group(const std::vector<std::int64_t>& ranks,
                                      const std::string& name) = 0;
  /// Every peer's present and future calls fail with `reason`: one rank's end is the end of all.
  virtual void abort(const std::string& reason) = 0;
  /// Of all groups of this rank.
  virtual CommCounters& counters() = 0;
  /// The iteration that this rank begins: messages about ranks that do not come name it.
  virtual void note_iteration(std::int64_t iteration) = 0;
  /// What this host's ranks know of a failure; outlives this object.
  virtual std::shared_ptr<FailureNotice> failure_notice() = 0;
};

}  // namespace megatron
