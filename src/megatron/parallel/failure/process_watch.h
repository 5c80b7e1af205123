// Whether another process of this host still runs; one that has ended but waits for its parent
// counts as ended.
#pragma once

#include <cstdint>

namespace megatron {

class ProcessWatch {
 public:
  explicit ProcessWatch(std::int32_t process);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  bool has_ended() const;

 private:
  std::int32_t process_;
  int handle_;  ///< −1 without pidfd_open in this kernel, or when the process had ended before
};

}  // namespace megatron
