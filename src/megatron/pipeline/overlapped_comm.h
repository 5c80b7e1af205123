// A process group whose calls overlap with the other half of an overlapped pair
// (overlapped_pair.h). A wait first starts the call, then yields, and waits when it runs again.
// Results and the order of calls on all ranks do not change. While no pair runs, calls go directly
// to the group.
#pragma once

#include <initializer_list>
#include <memory>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"
#include "megatron/pipeline/overlapped_pair.h"

namespace megatron {

class OverlappedComm final : public Comm {
 public:
  OverlappedComm(std::shared_ptr<Comm> comm, std::shared_ptr<OverlappedPair> pair)
      : comm_(std::move(comm)), pair_(std::move(pair)) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return comm_->name(); }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }
  OverlappedPair& pair() const { return *pair_; }

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;

 private:
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<OverlappedPair> pair_;
};

/// Wraps the groups of `axes`, over which the layers communicate, for one overlapped pair. Call it
/// before anything copies the axes (a model's parameters do). It does nothing on an axis of one
/// rank.
void enable_overlap(std::initializer_list<Axis*> axes, c10::Device device);
/// Returns the overlapped pair of the first of `axes` that has one, or null.
OverlappedPair* overlapped_pair_of(std::initializer_list<const Axis*> axes);

}  // namespace megatron
