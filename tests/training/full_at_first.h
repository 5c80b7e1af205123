// A disk that is full for a while.
#pragma once

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "megatron/base/file_system.h"

namespace megatron {

/// A disk on which the first files of weights cannot be created. Thread-safe.
class FullAtFirst : public FileSystem {
 public:
  explicit FullAtFirst(int times) : times_(times) {}
  int create(const std::filesystem::path& path) override {
    if (path.filename().string().starts_with("weights") && times_-- > 0) {
      errno = ENOSPC;
      return -1;
    }
    return FileSystem::create(path);
  }

 private:
  std::atomic<int> times_;
};

}  // namespace megatron
