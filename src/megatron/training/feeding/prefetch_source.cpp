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

/// A microbatch whose copies may still be under way.
struct Staged {
  Microbatch microbatch;
  std::optional<c10::Event> copied;
};

/// Copies to a device; on a GPU they run on a stream beside the one that computes.
class Feed {
 public:
  explicit Feed(c10::Device device) : device_(device) {
    if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }

  Staged send(Microbatch host) const {
    if (device_.is_cpu()) return {.microbatch = std::move(host), .copied = std::nullopt};
    if (!stream_) return {.microbatch = copy(host), .copied = std::nullopt};
    const c10::StreamGuard guard(*stream_);
    Staged staged{.microbatch = copy(host), .copied = std::nullopt};
    staged.copied.emplace(device_.type()).record(*stream_);
    return staged;
  }

  /// Makes the calling thread's stream wait for the copies; the host does not.
  Microbatch receive(Staged staged) const {
    if (!staged.copied) return std::move(staged.microbatch);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    staged.copied->block(stream);
    for (auto& [name, tensor] : staged.microbatch.tensors) tensor.record_stream(stream);
    if (staged.microbatch.sample_ordinals.defined()) staged.microbatch.sample_ordinals.record_stream(stream);
    return std::move(staged.microbatch);
  }

 private:
  /// Pinned memory is what lets a copy run by itself; ATen keeps it until the copy is done.
  Microbatch copy(const Microbatch& host) const {
    const auto sent = [this](const at::Tensor& tensor) {
      return (stream_ ? tensor.pin_memory() : tensor).to(device_, /*non_blocking=*/stream_.has_value());
    };
    Microbatch result;
    for (const auto& [name, tensor] : host.tensors) result.tensors[name] = sent(tensor);
    if (host.sample_ordinals.defined()) result.sample_ordinals = sent(host.sample_ordinals);
    return result;
  }

  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

class PrefetchSource : public MicrobatchSource {
 public:
  PrefetchSource(std::unique_ptr<MicrobatchSource> source, const PrefetchOptions& options)
      : source_(std::move(source)),
        feed_(options.device),
        pool_(
            {.workers = options.in_thread ? 1 : 0, .depth = options.depth}, [] { return std::monostate(); },
            [this, in_thread = options.in_thread](std::monostate) {
              if (in_thread) omp_set_num_threads(1);  // of this thread alone: it must not have a team beside the one that computes
              return feed_.send(source_->next());
            }) {}

  Microbatch next() override {
    std::optional<Staged> staged = pool_.next();
    MEGATRON_CHECK(staged.has_value(), "microbatches were asked for after their source had failed");
    return feed_.receive(std::move(*staged));
  }

 private:
  std::unique_ptr<MicrobatchSource> source_;
  Feed feed_;
  OrderedPool<std::monostate, Staged> pool_;  // last: its thread uses the others and ends first
};

}  // namespace

std::unique_ptr<MicrobatchSource> prefetched(std::unique_ptr<MicrobatchSource> source, const PrefetchOptions& options) {
  return std::make_unique<PrefetchSource>(std::move(source), options);
}

}  // namespace megatron
