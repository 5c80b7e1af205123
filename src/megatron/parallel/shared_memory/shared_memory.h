// Memory of zeros that several ranks map. Pages never touched cost nothing. Between processes it is
// an anonymous file (memfd) opened through /proc: it has no name, so nothing is left behind however
// the processes end, and the size of /dev/shm does not limit it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace megatron {

class SharedMemory {
 public:
  /// Shared by the threads of this process.
  static std::shared_ptr<SharedMemory> for_threads(std::size_t bytes);
  /// Shared by processes: the others open it by its handle() while this object lives.
  static std::shared_ptr<SharedMemory> for_processes(std::size_t bytes);
  /// Null when the handle does not lead to that block: another container, another host, or its
  /// maker has ended.
  static std::shared_ptr<SharedMemory> open(const std::string& handle, std::size_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& handle() const { return handle_; }

 private:
  SharedMemory(std::byte* data, std::size_t bytes, int file, std::string handle);
  std::byte* data_;
  std::size_t bytes_;
  int file_;
  std::string handle_;
};

}  // namespace megatron
