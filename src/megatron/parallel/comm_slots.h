// The groups of a rank as its axes hold them. A slot is a group by its ranks, the place of this one
// among them and the name of an axis. It outlives the communicators that carry its calls, so that
// those of a new start of the run replace dead ones below a model that stays. Axes with the same
// ranks share a transport, but each counts and reports its calls under its own name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

class CommSlot;

/// Not thread-safe, and no call of a slot may run while its group is exchanged.
class CommSlots {
 public:
  /// Returns the slot of comm's ranks, of its rank among them and of this name. The calls of the
  /// slot go to `comm` from now on.
  std::shared_ptr<Comm> connect(const std::string& name, std::shared_ptr<Comm> comm);
  /// Forgets the groups of all slots. A slot must not be called until connect() gives it another.
  /// Slots without another owner are gone, and the counters begin anew.
  void disconnect();
  /// Returns the counters of the groups, which live as long as these slots.
  const std::shared_ptr<CommCounters>& counters() const { return counters_; }

 private:
  using Key = std::tuple<std::vector<std::int64_t>, std::int64_t, std::string>;
  std::map<Key, std::shared_ptr<CommSlot>> slots_;
  std::shared_ptr<CommCounters> counters_ = std::make_shared<CommCounters>();
};

}  // namespace megatron
