// Makes the process groups of a rank on demand. Groups of the same ranks share one transport, and
// each counts its calls under its own name.
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
  virtual std::int64_t rank() const = 0;  ///< Rank in the world.
  virtual std::int64_t world_size() const = 0;
  /// Returns the group of `ranks`, which must be ascending and contain this rank; null for one
  /// rank. `name` is the axis, under which its calls are counted. Collective over `ranks`.
  virtual std::shared_ptr<Comm> group(const std::vector<std::int64_t>& ranks,
                                      const std::string& name) = 0;
  /// Makes every present and future call of every peer fail with `reason`.
  virtual void abort(const std::string& reason) = 0;
  /// Returns the counters shared by all groups of this rank.
  virtual CommCounters& counters() = 0;
  /// Records the iteration that this rank begins, which hang reports name.
  virtual void note_iteration(std::int64_t iteration) = 0;
  /// Returns the failure state shared by the ranks of this host. It may outlive this object.
  virtual std::shared_ptr<FailureNotice> failure_notice() = 0;
};

}  // namespace megatron
