// Tells whether another process of this host still runs. A zombie process counts as ended.
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
  int handle_;  ///< −1 when the kernel lacks pidfd_open or the process had already ended.
};

}  // namespace megatron
