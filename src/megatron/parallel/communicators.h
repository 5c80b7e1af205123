// Makes the process groups of a rank on demand. Groups of the same ranks share one transport, and
// each counts its calls under its own name.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

class FailureNotice;

/// A limit for what a rank does next.
struct Deadline {
  std::string what = {};               ///< such as "the section 'step'"
  std::chrono::milliseconds limit{0};  ///< 0: none
  std::string source = {};             ///< of the limit, such as the flag that sets it
};

/// See Communicators::set_deadline().
using SetDeadline = std::function<void(const Deadline& deadline)>;

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
  /// Records that this rank begins work of its own that may let others wait, such as "saving the
  /// checkpoint". Until the matching end_section(), waits for this rank continue past their timeout
  /// as long as it makes progress, up to ten times as long. Sections may nest; reports name the
  /// outermost.
  virtual void begin_section(const std::string& what) = 0;
  virtual void end_section() = 0;
  /// Ends the run, on this rank and its peers, unless this function is called again within the
  /// limit. The failure names the rank that delays this one. Ranks that are threads have no watch,
  /// and no deadline.
  virtual void set_deadline(const Deadline& deadline) = 0;
  /// Returns the failure state shared by the ranks of this host. It may outlive this object.
  virtual std::shared_ptr<FailureNotice> failure_notice() = 0;
};

/// A section of this rank (Communicators::begin_section()) from construction to destruction.
/// `communicators` may be null.
class SectionScope {
 public:
  SectionScope(Communicators* communicators, const std::string& what)
      : communicators_(communicators) {
    if (communicators_ != nullptr) communicators_->begin_section(what);
  }
  ~SectionScope() {
    if (communicators_ != nullptr) communicators_->end_section();
  }
  SectionScope(const SectionScope&) = delete;
  SectionScope& operator=(const SectionScope&) = delete;

 private:
  Communicators* communicators_;
};

}  // namespace megatron
