// A call that the stream of a GPU waits for. The host only queues it.
#pragma once

#include <chrono>
#include <cstdint>

namespace megatron {

struct DeviceCall {
  std::uint64_t number = 0;          ///< in the rank's history of calls
  std::chrono::milliseconds age{0};  ///< time since the stream waits for it
};

}  // namespace megatron
