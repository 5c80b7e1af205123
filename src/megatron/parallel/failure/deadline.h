// A limit for what a rank does next.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace megatron {

struct Deadline {
  std::string what = {};               ///< such as "the section 'step'"
  std::chrono::milliseconds limit{0};  ///< 0: none
  std::string source = {};             ///< of the limit, such as the flag that sets it
};

/// See Communicators::set_deadline().
using SetDeadline = std::function<void(const Deadline& deadline)>;

}  // namespace megatron
