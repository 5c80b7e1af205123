// Memory of zeros that several ranks map. Pages never touched cost nothing. Between processes it is an anonymous file (memfd) opened through /proc:
// it has no name, so nothing is left behind however the processes end, and the size of /dev/shm does not limit it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace megatron {

class SharedBlock {
 public:
  /// Shared by the threads of this process.
  static std::shared_ptr<SharedBlock> of_threads(std::size_t bytes);
  /// Shared by processes: the others open it by its ticket() while this object lives.
  static std::shared_ptr<SharedBlock> of_processes(std::size_t bytes);
  /// Null when the ticket does not lead to that block: another container, another host, or its maker has ended.
  static std::shared_ptr<SharedBlock> open(const std::string& ticket, std::size_t bytes);

  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& ticket() const { return ticket_; }

 private:
  SharedBlock(std::byte* data, std::size_t bytes, int file, std::string ticket);
  std::byte* data_;
  std::size_t bytes_;
  int file_;
  std::string ticket_;
};

}  // namespace megatron
