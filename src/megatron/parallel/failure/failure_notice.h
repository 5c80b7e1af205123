// What the ranks of one host know of a failure between them, for those who end a rank.
#pragma once

#include <string>

namespace megatron {

class FailureNotice {
 public:
  virtual ~FailureNotice() = default;
  /// The first failure; empty while there is none.
  virtual std::string failure() const = 0;
  /// True for the first caller among the ranks of this host: it prints what all of them know.
  virtual bool claim_report() = 0;
};

}  // namespace megatron
