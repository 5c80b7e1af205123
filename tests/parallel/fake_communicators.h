// Communicators that only record which groups were requested.
#pragma once

#include <algorithm>
#include <map>

#include "megatron/base/error.h"
#include "megatron/parallel/communicators.h"

namespace megatron {

class FakeComm final : public Comm {
 public:
  FakeComm(std::int64_t rank, std::vector<std::int64_t> ranks, std::string name)
      : rank_(rank), ranks_(std::move(ranks)), name_(std::move(name)) {}
  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(ranks_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }

 protected:
  PendingWork start(CommCall) override { return nothing(); }
  void run(CommCall) override { nothing(); }

 private:
  [[noreturn]] PendingWork nothing() { throw CommError("a fake communicator moves nothing"); }

  std::int64_t rank_;
  std::vector<std::int64_t> ranks_;
  std::string name_;
};

class FakeCommunicators final : public Communicators {
 public:
  FakeCommunicators(std::int64_t rank, std::int64_t world_size)
      : rank_(rank), world_size_(world_size) {}
  std::int64_t rank() const override { return rank_; }
  std::int64_t world_size() const override { return world_size_; }
  std::shared_ptr<Comm> group(const std::vector<std::int64_t>& ranks,
                              const std::string& name) override {
    if (ranks.size() == 1) return nullptr;
    auto& made = groups_[ranks];
    if (made) return made;
    const auto position = std::find(ranks.begin(), ranks.end(), rank_);
    MEGATRON_CHECK(position != ranks.end(), "rank ", rank_, " asks for a group without itself");
    names_.push_back(name);
    return made = std::make_shared<FakeComm>(position - ranks.begin(), ranks, name);
  }
  void abort(const std::string&) override {}
  CommCounters& counters() override { return counters_; }
  void note_iteration(std::int64_t) override {}
  void set_deadline(const Deadline&) override {}
  void begin_section(const std::string&) override {}
  void end_section() override {}
  std::shared_ptr<FailureNotice> failure_notice() override { return nullptr; }

  /// Returns the names of the groups made, in order.
  const std::vector<std::string>& made() const { return names_; }

 private:
  std::int64_t rank_, world_size_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<Comm>> groups_;
  std::vector<std::string> names_;
  CommCounters counters_;
};

}  // namespace megatron
