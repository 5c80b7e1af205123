// The failure state that the ranks of one host share, as seen by the code that ends a rank.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

class FailureNotice {
 public:
  virtual ~FailureNotice() = default;
  /// Returns the text of the first failure, or "" when there is none.
  virtual std::string failure() const = 0;
  /// Returns whether the failure is the message of a rank that failed.
  virtual bool is_failure_explained() const = 0;
  /// Marks the failure that follows as a guess from the silence of a rank, not the message of one
  /// that failed.
  virtual void mark_as_guess() = 0;
  /// Returns true for the first caller among the ranks of this host, which must print the failure.
  virtual bool claim_report() = 0;
  /// Returns whether the process of a rank of this host has ended, for whatever reason; false if it
  /// is on another host.
  virtual bool has_process_ended(std::int64_t rank) = 0;
};

}  // namespace megatron
