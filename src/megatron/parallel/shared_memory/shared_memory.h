// Zero-filled memory that several ranks map. Untouched pages cost nothing. Between processes it is
// an anonymous file (memfd) opened through /proc. It has no name, so nothing remains after the
// processes end, and the size of /dev/shm does not limit it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "megatron/base/descriptor.h"

namespace megatron {

/// The name of the memory between processes in /proc/self/maps.
inline constexpr const char* kSharedMemoryName = "megatron-ranks";

class SharedMemory {
 public:
  /// Makes memory that the threads of this process share.
  static std::shared_ptr<SharedMemory> for_threads(std::size_t bytes);
  /// Makes memory that other processes open by handle() while this object lives.
  static std::shared_ptr<SharedMemory> for_processes(std::size_t bytes);
  /// Opens memory by its handle. Returns null when the handle does not lead to that block: in
  /// another container, on another host, or after its maker has ended.
  static std::shared_ptr<SharedMemory> open(const std::string& handle, std::size_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& handle() const { return handle_; }

 private:
  SharedMemory(std::byte* data, std::size_t bytes, Descriptor file, std::string handle);
  std::byte* data_;
  std::size_t bytes_;
  Descriptor file_;
  std::string handle_;
};

}  // namespace megatron
