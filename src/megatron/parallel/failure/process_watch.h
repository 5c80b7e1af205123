// Tells whether another process of this host still runs. A zombie process counts as ended.
#pragma once

#include <cstdint>

#include "megatron/base/descriptor.h"

namespace megatron {

class ProcessWatch {
 public:
  explicit ProcessWatch(std::int32_t process);
  bool has_ended() const;

 private:
  std::int32_t process_;
  Descriptor handle_;  ///< none when the kernel lacks pidfd_open or the process had already ended.
};

}  // namespace megatron
