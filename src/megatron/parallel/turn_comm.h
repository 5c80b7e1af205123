// A group whose calls pass under the other step of a joined pair (turns.h): whoever waits for a call starts it, hands the turn over, and waits when
// the turn is back. Results, and the order of calls on all ranks, stay what they are. Without a pair it is the group itself.
#pragma once

#include <memory>

#include "megatron/parallel/axis.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/turns.h"

namespace megatron {

class TurnComm final : public Comm {
 public:
  TurnComm(std::shared_ptr<Comm> comm, std::shared_ptr<Turns> turns) : comm_(std::move(comm)), turns_(std::move(turns)) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return comm_->name(); }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }
  Turns& turns() const { return *turns_; }

 protected:
  PendingWork start(CommCall call) override;
  void run(CommCall call) override;

 private:
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<Turns> turns_;
};

/// Puts turns in front of the group of an axis, before anything copies it (a model's parameters do); nothing on an axis of one rank.
void take_turns(Axis& axis, c10::Device device);
/// Those of an axis that takes turns; else null.
Turns* turns_of(const Axis& axis);

}  // namespace megatron
