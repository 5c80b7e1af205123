// Uses only point-to-point messages of Gloo. Its reductions round 16-bit numbers at every hop, and
// give wrong sums without an error when ranks disagree on a size. message_transport.h compares the
// calls first and reduces in the same order as shared memory.
//
// Gloo itself connects whole groups at once, or blocks in the first call to a peer, which would
// not show which rank is missing. So each pair is a group of two, which a thread connects.
#define USE_C10D_GLOO  // LibTorch was built with it

#include "megatron/parallel/gloo/gloo_channel.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rendezvous/c10d_store.h"
#include "megatron/parallel/rendezvous/wait_for_ranks.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// Extra time for FailureMonitor, which ends waits and may extend them while others make progress.
/// When a wait of Gloo times out, it closes the connection and the peer is blamed.
constexpr std::chrono::hours kWatchLead{24};
/// Limit for two ranks that are both here to connect. Nothing can end this wait earlier, so the end
/// of a channel may take as long if the peer dies just then.
constexpr milliseconds kConnectTimeout{20'000};

std::exception_ptr cancelled() {
  return std::make_exception_ptr(CommError("cancelled, because this rank is ending"));
}

/// A send or receive of a link, which may not be connected yet. Thread-safe.
class LinkCall {
 public:
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(c10d::ProcessGroupGloo& link)>;
  explicit LinkCall(Start start) : start_(std::move(start)) {}

  /// Starts the call unless it was cancelled.
  void start(c10d::ProcessGroupGloo& link) {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    try {
      work_ = start_(link);
    } catch (const std::exception&) {
      failure_ = std::current_exception();  // wait() reports it
    }
    changed_.notify_all();
  }
  /// Makes wait() throw `failure` unless the call has started.
  void fail(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    if (!work_ && !failure_) failure_ = failure;
    changed_.notify_all();
  }
  void cancel() {
    fail(cancelled());
    const std::lock_guard lock(mutex_);
    if (work_) work_->abort();
  }
  /// Makes sure that the memory of the call is not used any more.
  void abandon() {
    fail(cancelled());
    const std::lock_guard lock(mutex_);
    work_.reset();
  }
  void wait(milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_ || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    const c10::intrusive_ptr<c10d::Work> work = work_;
    lock.unlock();
    if (!work->wait(timeout)) std::rethrow_exception(cancelled());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Start start_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::exception_ptr failure_;
};

/// Calls under way, kept so that cancel() can end them. Thread-safe.
class ActiveCalls {
 public:
  void add(LinkCall* call) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) call->cancel();
    calls_.insert(call);
  }
  void remove(LinkCall* call) {
    const std::lock_guard lock(mutex_);
    calls_.erase(call);
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (LinkCall* call : calls_) call->cancel();
  }
  bool is_cancelled() const { return cancelled_; }

 private:
  std::mutex mutex_;
  std::set<LinkCall*> calls_;
  std::atomic<bool> cancelled_ = false;
};

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(std::shared_ptr<LinkCall> call, std::shared_ptr<ActiveCalls> active,
               milliseconds timeout)
      : call_(std::move(call)), active_(std::move(active)), timeout_(timeout) {
    active_->add(call_.get());
  }
  /// The link may still hold the call, but its memory may be gone.
  ~GlooTransfer() override {
    active_->remove(call_.get());
    call_->abandon();
  }
  void wait() override { call_->wait(timeout_); }

 private:
  std::shared_ptr<LinkCall> call_;
  std::shared_ptr<ActiveCalls> active_;
  milliseconds timeout_;
};

/// The connection with one peer, which a thread makes. Calls that come earlier wait in their order.
class GlooLink {
 public:
  using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
  explicit GlooLink(std::function<Group()> connect)
      : thread_([this, connect = std::move(connect)] { run(connect); }) {}
  ~GlooLink() { thread_.join(); }
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;

  void add(std::shared_ptr<LinkCall> call) {
    const std::lock_guard lock(mutex_);
    if (failure_)
      call->fail(failure_);
    else if (group_)
      call->start(*group_);
    else
      early_calls_.push_back(std::move(call));
  }

 private:
  void run(const std::function<Group()>& connect) noexcept {
    Group group;
    std::exception_ptr failure;
    try {
      group = connect();
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    group_ = std::move(group);
    failure_ = failure;
    for (const auto& call : early_calls_) failure ? call->fail(failure) : call->start(*group_);
    early_calls_.clear();
  }

  std::mutex mutex_;
  Group group_;
  std::exception_ptr failure_;
  std::vector<std::shared_ptr<LinkCall>> early_calls_;
  std::thread thread_;  ///< Uses the members above.
};

class GlooChannel final : public ByteChannel {
 public:
  GlooChannel(const RunStore& store, const GlooOptions& options)
      : store_(store),
        options_(options),
        device_(c10d::ProcessGroupGloo::createDeviceForHostname(
            options.address.empty() ? "127.0.0.1" : options.address)) {}
  ~GlooChannel() override { active_->cancel(); }

  std::unique_ptr<Transfer> start_send(std::int64_t to, std::uint32_t tag, const void* data,
                                       std::size_t bytes) override {
    return started(to, [this, to, tag, tensors = bytes_at(const_cast<void*>(data), bytes)](
                           c10d::ProcessGroupGloo& link) mutable {
      return link.send(tensors, place_in_link(to, options_.rank), static_cast<int>(tag));
    });
  }
  std::unique_ptr<Transfer> start_receive(std::int64_t from, std::uint32_t tag, void* data,
                                          std::size_t bytes) override {
    return started(from, [this, from, tag,
                          tensors = bytes_at(data, bytes)](c10d::ProcessGroupGloo& link) mutable {
      return link.recv(tensors, place_in_link(from, options_.rank), static_cast<int>(tag));
    });
  }
  void cancel() override { active_->cancel(); }

 private:
  /// Returns the rank of `rank` in the group that it forms with `peer`.
  static int place_in_link(std::int64_t rank, std::int64_t peer) { return rank < peer ? 0 : 1; }
  static std::vector<at::Tensor> bytes_at(void* data, std::size_t bytes) {
    MEGATRON_CHECK(bytes > 0, "Gloo cannot carry an empty message");
    return {at::from_blob(data, {static_cast<std::int64_t>(bytes)},
                          at::TensorOptions().dtype(at::kByte))};
  }

  std::unique_ptr<Transfer> started(std::int64_t peer, LinkCall::Start start) {
    auto call = std::make_shared<LinkCall>(std::move(start));
    auto transfer = std::make_unique<GlooTransfer>(call, active_, options_.timeout + kWatchLead);
    try {
      link_with(peer).add(call);
    } catch (const std::exception&) {
      call->fail(std::current_exception());  // no thread could start; wait() reports it
    }
    return transfer;
  }
  GlooLink& link_with(std::int64_t peer) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<GlooLink>& link = links_[peer];
    if (!link) link = std::make_unique<GlooLink>([this, peer] { return connect(peer); });
    return *link;
  }

  /// Waits until the peer has something for this rank too, and connects with it.
  GlooLink::Group connect(std::int64_t peer) {
    const StoreWait wait{
        .what = "connecting ranks with Gloo",
        .timeout = options_.timeout + kWatchLead,
        .find_failure =
            [this] {
              return active_->is_cancelled() ? "cancelled, because this rank is ending" : "";
            },
        .longest_pause = std::max(milliseconds(20), milliseconds(options_.size))};
    const auto calls_of = [](std::int64_t rank) { return "calls/" + std::to_string(rank); };
    store_.set(calls_of(peer) + "/" + std::to_string(options_.rank), "yes");
    wait_for_ranks(store_, calls_of(options_.rank), {peer}, wait);
    const auto link_options =
        c10d::ProcessGroupGloo::Options::create(std::min(options_.timeout, kConnectTimeout));
    link_options->devices.push_back(device_);
    link_options->threads = 0;  // they carry collectives only
    const auto [low, high] = std::minmax(options_.rank, peer);
    const std::string key = "link/" + std::to_string(low) + "-" + std::to_string(high);
    try {
      return c10::make_intrusive<c10d::ProcessGroupGloo>(
          make_c10d_store(store_, key), place_in_link(options_.rank, peer), 2, link_options);
    } catch (const c10::Error& error) {
      throw CommError(std::string("connecting ranks with Gloo: ") + error.what_without_backtrace());
    }
  }

  RunStore store_;
  GlooOptions options_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<ActiveCalls> active_ = std::make_shared<ActiveCalls>();
  std::mutex mutex_;
  std::map<std::int64_t, std::unique_ptr<GlooLink>> links_;  ///< Their threads use all of this.
};

}  // namespace

std::shared_ptr<ByteChannel> make_gloo_channel(const RunStore& store, const GlooOptions& options) {
  try {
    return std::make_shared<GlooChannel>(store, options);
  } catch (const std::exception& error) {  // Gloo throws errors of its own
    const std::string text(error.what());
    throw UserError({"Gloo cannot listen at " + options.address + ", the address of this host",
                     text.substr(0, text.find('\n')),
                     "give --master-addr (MASTER_ADDR) an address of rank 0's host in the network "
                     "that connects all hosts"});
  }
}

}  // namespace megatron
