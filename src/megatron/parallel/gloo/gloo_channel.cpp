// Uses only point-to-point messages of Gloo. Its reductions round 16-bit numbers at every hop, and
// give wrong sums without an error when ranks disagree on a size. message_transport.h compares the
// calls first and reduces in the same order as shared memory.
#define USE_C10D_GLOO  // LibTorch was built with it

#include "megatron/parallel/gloo/gloo_channel.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <exception>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

/// Extra time for FailureMonitor, which ends waits and may extend them while others make progress.
/// When a wait of Gloo times out, it closes the connection and the peer is blamed.
constexpr std::chrono::hours kWatchLead{24};

/// Works under way, kept so that cancel() can abort them.
class ActiveWorks {
 public:
  void add(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw CommError("cancelled, because this rank is ending");
    works_.insert(work);
  }
  void remove(c10d::Work* work) {
    const std::lock_guard lock(mutex_);
    works_.erase(work);
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (c10d::Work* work : works_) work->abort();
  }

 private:
  std::mutex mutex_;
  std::set<c10d::Work*> works_;
  bool cancelled_ = false;
};

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<ActiveWorks> active,
               std::chrono::milliseconds timeout)
      : work_(std::move(work)), active_(std::move(active)), timeout_(timeout) {
    active_->add(work_.get());
  }
  ~GlooTransfer() override { active_->remove(work_.get()); }
  void wait() override {
    if (!work_->wait(timeout_)) throw CommError("cancelled, because this rank is ending");
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<ActiveWorks> active_;
  std::chrono::milliseconds timeout_;
};

/// A transfer that could not start, because the peer has closed the connection or the channel is
/// cancelled.
class FailedTransfer final : public Transfer {
 public:
  // NOLINTNEXTLINE(bugprone-throw-keyword-missing): wait() throws it.
  explicit FailedTransfer(std::exception_ptr failure) : failure_(std::move(failure)) {}
  void wait() override { std::rethrow_exception(failure_); }

 private:
  std::exception_ptr failure_;
};

class GlooChannel final : public ByteChannel {
 public:
  GlooChannel(const c10::intrusive_ptr<c10d::Store>& store, const GlooOptions& options)
      : timeout_(options.timeout + kWatchLead) {
    const auto group_options = c10d::ProcessGroupGloo::Options::create(options.timeout);
    // Not lazily: a first call to a rank that has not arrived would block outside of the waits that
    // name it, and end in a connect timeout.
    group_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(
        options.address.empty() ? "127.0.0.1" : options.address));
    group_options->threads = 1;
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        store, static_cast<int>(options.rank), static_cast<int>(options.size), group_options);
  }

  std::unique_ptr<Transfer> start_send(std::int64_t to, std::uint32_t tag, const void* data,
                                       std::size_t bytes) override {
    std::vector<at::Tensor> tensors{bytes_at(const_cast<void*>(data), bytes)};
    return started(
        [&] { return group_->send(tensors, static_cast<int>(to), static_cast<int>(tag)); });
  }
  std::unique_ptr<Transfer> start_receive(std::int64_t from, std::uint32_t tag, void* data,
                                          std::size_t bytes) override {
    std::vector<at::Tensor> tensors{bytes_at(data, bytes)};
    return started(
        [&] { return group_->recv(tensors, static_cast<int>(from), static_cast<int>(tag)); });
  }
  void cancel() override { active_->cancel(); }

 private:
  static at::Tensor bytes_at(void* data, std::size_t bytes) {
    MEGATRON_CHECK(bytes > 0, "Gloo cannot carry an empty message");
    return at::from_blob(data, {static_cast<std::int64_t>(bytes)},
                         at::TensorOptions().dtype(at::kByte));
  }
  template <class Start>
  std::unique_ptr<Transfer> started(const Start& start) {
    try {
      return std::make_unique<GlooTransfer>(start(), active_, timeout_);
    } catch (const std::exception&) {
      return std::make_unique<FailedTransfer>(std::current_exception());  // wait() reports it
    }
  }

  std::chrono::milliseconds timeout_;
  std::shared_ptr<ActiveWorks> active_ = std::make_shared<ActiveWorks>();
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::shared_ptr<ByteChannel> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                          const GlooOptions& options) {
  try {
    return std::make_shared<GlooChannel>(store, options);
  } catch (const c10::Error& error) {
    throw CommError(std::string("connecting ranks with Gloo: ") + error.what_without_backtrace());
  }
}

}  // namespace megatron
