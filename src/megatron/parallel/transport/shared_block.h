// Memory of zeros that several ranks map. Pages never touched cost nothing.
#pragma once

#include <cstddef>
#include <memory>

namespace megatron {

class SharedBlock {
 public:
  /// Shared by the threads of this process.
  static std::shared_ptr<SharedBlock> of_threads(std::size_t bytes);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  SharedBlock(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace megatron
