// Signs of faulty hardware, after which the same run may succeed.
#pragma once

#include <stdexcept>

namespace megatron {

/// Results that only faulty hardware explains. The exit code is 1, so that a launcher starts the
/// ranks again.
class HardwareError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace megatron
