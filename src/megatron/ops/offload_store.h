// A place outside a device's memory where tensors wait until they are needed again: a file, for a
// CPU, or pinned memory of the host, for a GPU. Copies overlap the computation.
//
//   std::unique_ptr<OffloadedTensor> handle = store.put(std::move(tensor));  // starts the copy
//   handle->prefetch();                                                      // starts reading
//   at::Tensor again = handle->get();                                        // waits
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace megatron {

class OffloadFile;

/// A tensor in an OffloadStore. It may outlive the store. Destroying it frees its place. One thread
/// at a time may use it.
class OffloadedTensor {
 public:
  virtual ~OffloadedTensor() = default;
  /// Starts reading the tensor into `into`, which has its size and type and memory of its own, or
  /// into new memory if that is undefined. Does nothing if it has begun, or if the tensor is still
  /// in memory because its copy has not ended: then it stays there.
  virtual void prefetch(at::Tensor into) = 0;
  void prefetch() { prefetch(at::Tensor()); }
  /// Returns the tensor with the bits that put() was given, and frees its place. Call it once. A
  /// copy to or from a file that failed throws a UserError that names the folder.
  virtual at::Tensor get() = 0;
  /// Returns what get() does and leaves the copy where it is. Nothing may write to the result. It
  /// may lie where the tensor was, although another place was given.
  virtual at::Tensor read() = 0;
};

/// What went through a store so far.
struct OffloadStatistics {
  std::atomic<std::int64_t> stored_bytes{0}, peak_stored_bytes{0};
  std::atomic<std::int64_t> written_bytes{0}, read_bytes{0};

  void add_stored(std::int64_t bytes);
  void remove_stored(std::int64_t bytes) { stored_bytes -= bytes; }
};

class OffloadStore {
 public:
  virtual ~OffloadStore() = default;
  /// Starts copying a contiguous tensor and drops it when the copy is done. Nothing may write to
  /// the tensor's memory before that. The result of get() requires no gradient. Blocks while too
  /// many bytes wait to be written. Thread-safe.
  virtual std::unique_ptr<OffloadedTensor> put(at::Tensor tensor) = 0;
  const OffloadStatistics& statistics() const { return *statistics_; }

 protected:
  std::shared_ptr<OffloadStatistics> statistics_ = std::make_shared<OffloadStatistics>();
};

/// Creates a store of CPU tensors in `file`.
std::unique_ptr<OffloadStore> make_file_offload_store(std::shared_ptr<OffloadFile> file);

/// Creates a store of tensors of `device` in host memory. For a GPU the memory is pinned, and each
/// direction has a stream of its own, which waits for the current stream where it must; the host
/// waits for nothing. (Not yet run on a GPU.)
std::unique_ptr<OffloadStore> make_host_offload_store(c10::Device device);

}  // namespace megatron
