#include "megatron/training/feeding/prefetch_source.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <omp.h>

#include <optional>
#include <variant>

#include "megatron/base/error.h"
#include "megatron/base/ordered_pool.h"

namespace megatron {
namespace {

/// A microbatch whose copies may still be in progress.
struct PendingMicrobatch {
  Microbatch microbatch;
  std::optional<c10::Event> copy_done;
};

/// Copies microbatches to a device; on a GPU it uses a separate stream.
class DeviceCopier {
 public:
  explicit DeviceCopier(c10::Device device) : device_(device) {
    if (device.is_cuda())
      stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }

  PendingMicrobatch send(Microbatch host) const {
    std::optional<c10::StreamGuard> guard;
    if (stream_) guard.emplace(*stream_);
    PendingMicrobatch pending{
        .microbatch = device_.is_cpu() ? std::move(host) : copy(std::move(host)),
        .copy_done = std::nullopt};
    if (stream_) pending.copy_done.emplace(device_.type()).record(*stream_);
    return pending;
  }

  /// Makes the calling thread's stream wait for the copies; the host does not wait.
  Microbatch receive(PendingMicrobatch pending) const {
    if (!pending.copy_done) return std::move(pending.microbatch);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    pending.copy_done->block(stream);
    for (auto& [name, tensor] : pending.microbatch.tensors) tensor.record_stream(stream);
    if (pending.microbatch.sample_ordinals.defined())
      pending.microbatch.sample_ordinals.record_stream(stream);
    return std::move(pending.microbatch);
  }

 private:
  /// Uses pinned memory, which asynchronous copies require. ATen keeps it until the copy is done.
  Microbatch copy(Microbatch microbatch) const {
    const auto sent = [this](const at::Tensor& tensor) {
      return (stream_ ? tensor.pin_memory() : tensor)
          .to(device_, /*non_blocking=*/stream_.has_value());
    };
    for (auto& [name, tensor] : microbatch.tensors) tensor = sent(tensor);
    if (microbatch.sample_ordinals.defined())
      microbatch.sample_ordinals = sent(microbatch.sample_ordinals);
    return microbatch;
  }

  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

class PrefetchSource : public MicrobatchSource {
 public:
  PrefetchSource(std::unique_ptr<MicrobatchSource> source, const PrefetchOptions& options)
      : source_(std::move(source)),
        copier_(options.device),
        pool_(
            {.workers = options.in_thread ? 1 : 0, .depth = options.depth},
            [] { return std::monostate(); },
            [this, in_thread = options.in_thread](std::monostate) {
              if (in_thread)
                // This thread must not start an OpenMP team besides the compute threads.
                omp_set_num_threads(1);
              return copier_.send(source_->next());
            }) {}

  Microbatch next() override {
    std::optional<PendingMicrobatch> pending = pool_.next();
    MEGATRON_CHECK(pending.has_value(), "next() was called after the source had failed");
    return copier_.receive(std::move(*pending));
  }

 private:
  std::unique_ptr<MicrobatchSource> source_;
  DeviceCopier copier_;
  // Declared last: its thread uses the other members and must end first.
  OrderedPool<std::monostate, PendingMicrobatch> pool_;
};

}  // namespace

std::unique_ptr<MicrobatchSource> make_prefetch_source(std::unique_ptr<MicrobatchSource> source,
                                                       const PrefetchOptions& options) {
  return std::make_unique<PrefetchSource>(std::move(source), options);
}

}  // namespace megatron
