#include "megatron/ops/offload_store.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/offload_file.h"

namespace megatron {
namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

class TensorInFile final : public OffloadedTensor {
 public:
  TensorInFile(std::shared_ptr<OffloadFile> file, std::shared_ptr<OffloadStatistics> statistics,
               at::Tensor tensor)
      : file_(std::move(file)),
        statistics_(std::move(statistics)),
        sizes_(tensor.sizes().vec()),
        options_(tensor.options()),
        num_bytes_(static_cast<std::int64_t>(tensor.nbytes())),
        extent_(file_->allocate(tensor.nbytes())) {
    statistics_->add_stored(num_bytes_);
    statistics_->written_bytes += num_bytes_;
    const std::span<const std::byte> bytes = bytes_of(tensor);
    auto owner = std::make_shared<const at::Tensor>(std::move(tensor));
    being_written_ = owner;
    write_ = file_->write(bytes, extent_, std::move(owner));
  }
  TensorInFile(const TensorInFile&) = delete;
  TensorInFile& operator=(const TensorInFile&) = delete;
  ~TensorInFile() override {
    if (!is_returned_) release();
  }

  using OffloadedTensor::prefetch;
  void prefetch(at::Tensor into) override {
    if (is_returned_ || still_here_ != nullptr || result_.defined()) return;
    still_here_ = being_written_.lock();
    if (still_here_ == nullptr) start_reading(std::move(into));
  }

  at::Tensor get() override {
    MEGATRON_CHECK(!is_returned_, "an offloaded tensor is taken twice");
    prefetch();
    if (still_here_ != nullptr) {
      if (!write_.cancel()) write_.wait();
      result_ = *still_here_;
    } else {
      read_.wait();
    }
    is_returned_ = true;
    release();
    return std::move(result_);
  }

  at::Tensor read() override {
    MEGATRON_CHECK(!is_returned_, "an offloaded tensor is read after it was taken");
    prefetch();
    if (const auto here = std::exchange(still_here_, nullptr)) return *here;
    read_.wait();
    return std::exchange(result_, at::Tensor());
  }

 private:
  void start_reading(at::Tensor into) {
    write_.wait();  // has ended: it dropped its tensor; throws if it failed
    result_ = into.defined() ? std::move(into) : at::empty(sizes_, options_);
    statistics_->read_bytes += num_bytes_;
    read_ = file_->read(extent_, bytes_of(result_), std::make_shared<const at::Tensor>(result_));
  }

  /// Frees the extent as soon as no transfer uses it.
  void release() {
    for (const OffloadTransfer& transfer : {write_, read_}) {
      if (transfer.cancel()) continue;
      try {
        transfer.wait();
      } catch (const UserError&) {
        // The user of the tensor got the error; here only the end of the transfer matters.
        continue;
      }
    }
    still_here_.reset();
    file_->free(extent_);
    statistics_->remove_stored(num_bytes_);
  }

  const std::shared_ptr<OffloadFile> file_;
  const std::shared_ptr<OffloadStatistics> statistics_;
  const std::vector<std::int64_t> sizes_;
  const at::TensorOptions options_;
  const std::int64_t num_bytes_;
  const Extent extent_;
  std::weak_ptr<const at::Tensor> being_written_;  ///< expires when the copy is done
  std::shared_ptr<const at::Tensor> still_here_;
  OffloadTransfer write_, read_;
  at::Tensor result_;
  bool is_returned_ = false;
};

class FileOffloadStore final : public OffloadStore {
 public:
  explicit FileOffloadStore(std::shared_ptr<OffloadFile> file) : file_(std::move(file)) {}

  std::unique_ptr<OffloadedTensor> put(at::Tensor tensor) override {
    MEGATRON_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(), "a file takes no tensor on ",
                   tensor.device(), " with strides ", tensor.strides());
    return std::make_unique<TensorInFile>(file_, statistics_, tensor.detach());
  }

 private:
  std::shared_ptr<OffloadFile> file_;
};

/// The streams of a device's copies; without streams (a CPU), copies are ordinary.
struct CopyStreams {
  explicit CopyStreams(c10::Device on) : device(on) {
    if (!device.is_cuda()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    to_host = guard.getStreamFromGlobalPool(device);
    to_device = guard.getStreamFromGlobalPool(device);
  }

  c10::Stream current() const {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }
  /// Makes `stream` wait for what the calling thread's stream has been given so far.
  void wait_for_current(const c10::Stream& stream) const {
    c10::Event event(device.type());
    event.record(current());
    event.block(stream);
  }

  c10::Device device;
  std::optional<c10::Stream> to_host, to_device;
};

class TensorInHostMemory final : public OffloadedTensor {
 public:
  TensorInHostMemory(std::shared_ptr<const CopyStreams> streams,
                     std::shared_ptr<OffloadStatistics> statistics, const at::Tensor& tensor)
      : streams_(std::move(streams)),
        statistics_(std::move(statistics)),
        options_(tensor.options()),
        num_bytes_(static_cast<std::int64_t>(tensor.nbytes())) {
    const bool has_streams = streams_->to_host.has_value();
    host_ = at::empty(tensor.sizes(), options_.device(c10::kCPU).pinned_memory(has_streams));
    statistics_->add_stored(num_bytes_);
    statistics_->written_bytes += num_bytes_;
    if (!has_streams) {
      host_.copy_(tensor);
      return;
    }
    streams_->wait_for_current(*streams_->to_host);
    const c10::StreamGuard guard(*streams_->to_host);
    host_.copy_(tensor, /*non_blocking=*/true);
    written_.emplace(streams_->device.type()).record(*streams_->to_host);
    tensor.record_stream(*streams_->to_host);  // its memory is reused after the copy only
  }
  TensorInHostMemory(const TensorInHostMemory&) = delete;
  TensorInHostMemory& operator=(const TensorInHostMemory&) = delete;
  ~TensorInHostMemory() override {
    // ATen reuses pinned memory after the copies that use it.
    if (host_.defined()) statistics_->remove_stored(num_bytes_);
  }

  using OffloadedTensor::prefetch;
  void prefetch(at::Tensor into) override {
    if (result_.defined() || !host_.defined()) return;
    statistics_->read_bytes += num_bytes_;
    // Allocated on the current stream, as other tensors are, so that its memory is shared with
    // theirs; what used it before must then be done before the copy.
    result_ = into.defined() ? std::move(into) : at::empty(host_.sizes(), options_);
    if (!streams_->to_device) {
      result_.copy_(host_);
      return;
    }
    const c10::Stream& stream = *streams_->to_device;
    streams_->wait_for_current(stream);
    written_->block(stream);
    const c10::StreamGuard guard(stream);
    result_.copy_(host_, /*non_blocking=*/true);
    result_.record_stream(stream);
    read_.emplace(streams_->device.type()).record(stream);
  }

  at::Tensor get() override {
    MEGATRON_CHECK(host_.defined(), "an offloaded tensor is taken twice");
    at::Tensor result = read();
    host_.reset();
    statistics_->remove_stored(num_bytes_);
    return result;
  }

  at::Tensor read() override {
    MEGATRON_CHECK(host_.defined(), "an offloaded tensor is read after it was taken");
    prefetch();
    if (read_) read_->block(streams_->current());
    read_.reset();
    return std::exchange(result_, at::Tensor());
  }

 private:
  const std::shared_ptr<const CopyStreams> streams_;
  const std::shared_ptr<OffloadStatistics> statistics_;
  const at::TensorOptions options_;
  const std::int64_t num_bytes_;
  at::Tensor host_, result_;
  std::optional<c10::Event> written_, read_;
};

class HostOffloadStore final : public OffloadStore {
 public:
  explicit HostOffloadStore(c10::Device device)
      : streams_(std::make_shared<const CopyStreams>(device)) {}

  std::unique_ptr<OffloadedTensor> put(at::Tensor tensor) override {
    MEGATRON_CHECK(tensor.is_contiguous() && tensor.device().type() == streams_->device.type(),
                   "a store takes no tensor on ", tensor.device(), " with strides ",
                   tensor.strides());
    return std::make_unique<TensorInHostMemory>(streams_, statistics_, tensor.detach());
  }

 private:
  std::shared_ptr<const CopyStreams> streams_;
};

}  // namespace

void OffloadStatistics::add_stored(std::int64_t bytes) {
  const std::int64_t now = stored_bytes += bytes;
  std::int64_t peak = peak_stored_bytes;
  while (now > peak && !peak_stored_bytes.compare_exchange_weak(peak, now)) {
  }
}

std::unique_ptr<OffloadStore> make_file_offload_store(std::shared_ptr<OffloadFile> file) {
  return std::make_unique<FileOffloadStore>(std::move(file));
}

std::unique_ptr<OffloadStore> make_host_offload_store(c10::Device device) {
  return std::make_unique<HostOffloadStore>(device);
}

}  // namespace megatron
