// A group whose calls pass under the other step of a joined pair (overlapped_pair.h): whoever waits
// for a call starts it, hands the turn over, and waits when the turn is back. Results, and the
// order of calls on all ranks, stay what they are. Without a pair it is the group itself.
#pragma once

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

/// Puts an overlapped pair in front of the group of an axis, before anything copies it (a model's
/// parameters do); nothing on an axis of one rank.
void enable_overlap(Axis& axis, c10::Device device);
/// The overlapped pair of an axis that has one; else null.
OverlappedPair* overlapped_pair_of(const Axis& axis);

}  // namespace megatron
