#include "megatron/parallel/rank_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/parallel/comm_slots.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/shared_memory_transport.h"
#include "megatron/parallel/transport/queued_comm.h"

namespace megatron {
namespace {

using Ranks = std::vector<std::int64_t>;

/// State that the rank threads share.
class ThreadWorld {
 public:
  ThreadWorld(std::int64_t size, std::chrono::milliseconds timeout)
      : timeout(timeout),
        host_status(std::make_shared<HostStatus>(SharedMemory::for_threads(HostStatus::bytes(size)),
                                                 size)) {}

  /// Returns the shared memory of a group. The first rank that asks makes it.
  std::shared_ptr<SharedMemory> memory_of(const Ranks& ranks) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<SharedMemory>& block = blocks_[ranks];
    if (!block)
      block = SharedMemory::for_threads(
          SharedMemoryArea::bytes(static_cast<std::int64_t>(ranks.size())));
    return block;
  }

  void fail(std::int64_t rank, const std::string& reason, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(error);
    host_status->fail(ranks_text({rank}) + " failed: " + reason, /*is_explained=*/true);
  }
  std::exception_ptr first_failure() const { return first_; }

  const std::chrono::milliseconds timeout;
  const std::shared_ptr<HostStatus> host_status;

 private:
  std::mutex mutex_;
  std::map<Ranks, std::shared_ptr<SharedMemory>> blocks_;
  std::exception_ptr first_ = {};
};

class ThreadCommunicators final : public Communicators {
 public:
  ThreadCommunicators(ThreadWorld& world, std::int64_t rank, std::int64_t size)
      : world_(world), rank_(rank), size_(size) {}
  std::int64_t rank() const override { return rank_; }
  std::int64_t world_size() const override { return size_; }
  void abort(const std::string& reason) override { world_.host_status->fail(reason, true); }
  CommCounters& counters() override { return *slots_.counters(); }
  void note_iteration(std::int64_t iteration) override {
    world_.host_status->waits().note_iteration(rank_, iteration);
  }
  void begin_section(const std::string& what) override {
    world_.host_status->begin_section(rank_, what);
  }
  void end_section() override { world_.host_status->end_section(rank_); }
  void set_deadline(const Deadline& /*deadline*/) override {}
  std::shared_ptr<FailureNotice> failure_notice() override { return world_.host_status; }

  std::shared_ptr<Comm> group(const Ranks& ranks, const std::string& name) override {
    const auto own = std::lower_bound(ranks.begin(), ranks.end(), rank_);
    MEGATRON_CHECK(own != ranks.end() && *own == rank_, "rank ", rank_,
                   " is not a member of the group '", name, "'");
    if (ranks.size() == 1) return nullptr;
    std::shared_ptr<Comm>& comm = groups_[ranks];
    if (!comm) {
      GroupInfo group_info{name, ranks, own - ranks.begin()};
      SharedMemoryArea area(world_.memory_of(ranks), group_info.size());
      auto transport = std::make_shared<SharedMemoryTransport>(std::move(area), group_info,
                                                               world_.host_status, world_.timeout);
      comm = std::make_shared<QueuedComm>(std::move(group_info), std::move(transport),
                                          slots_.counters(), world_.host_status);
    }
    return slots_.connect(name, comm);
  }

 private:
  ThreadWorld& world_;
  std::int64_t rank_, size_;
  CommSlots slots_;
  std::map<Ranks, std::shared_ptr<Comm>> groups_;
};

void run_one(ThreadWorld& world, std::int64_t rank, std::int64_t size,
             const std::function<void(Communicators&)>& body) {
  at::set_num_threads(1);
  try {
    ThreadCommunicators communicators(world, rank, size);
    body(communicators);
  } catch (const std::exception& error) {
    world.fail(rank, error.what(), std::current_exception());
  } catch (...) {
    world.fail(rank, "an exception of unknown type", std::current_exception());
  }
  world.host_status->leave(rank);
}

}  // namespace

void run_rank_threads(std::int64_t world_size, const std::function<void(Communicators&)>& body,
                      const RankThreadOptions& options) {
  ThreadWorld world(world_size, options.timeout);
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] { run_one(world, rank, world_size, body); });
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr failure = world.first_failure()) std::rethrow_exception(failure);
}

}  // namespace megatron
