// A group over several hosts with equally many ranks on each: shared memory within a host, messages
// between the ranks of equal index on all hosts. A large all-reduce is a reduce-scatter within
// hosts, an all-reduce between them and an all-gather within them, so each byte leaves a host once.
// Sums are formed per host in rank order, then over the hosts. Uneven collectives use messages
// between all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/parallel/shared_memory/spin_wait.h"
#include "megatron/parallel/transport/transport.h"

namespace megatron {

class HierarchicalTransport final : public OperationTransport {
 public:
  struct Levels {
    std::shared_ptr<Transport> intra_host;  ///< Connects the ranks of this host.
    std::shared_ptr<Transport> inter_host;  ///< Connects the ranks of equal index, one per host.
    std::shared_ptr<Transport> flat;        ///< Connects the whole group.
    /// Rank in the group by [host][index]. Hosts are in the order of `inter_host`.
    std::vector<std::vector<std::int64_t>> members;
    std::int64_t host = 0, index = 0;  ///< Position of this rank in `members`.
  };
  explicit HierarchicalTransport(Levels levels) : levels_(std::move(levels)) {}
  void run(const CommCall& call) override;
  void cancel() override;

 private:
  void all_reduce(const CommCall& call) override;
  void all_gather(const CommCall& call) override;
  void reduce_scatter(const CommCall& call) override;
  void broadcast(const CommCall& call) override;
  void barrier(const CommCall& call) override;
  void all_to_all(const CommCall& call) override { levels_.flat->run(call); }
  void send(const CommCall& call) override { message(call); }
  void receive(const CommCall& call) override { message(call); }
  void message(const CommCall& call);
  std::int64_t hosts() const { return static_cast<std::int64_t>(levels_.members.size()); }
  std::int64_t per_host() const {
    return static_cast<std::int64_t>(levels_.members.front().size());
  }
  std::int64_t member(std::int64_t host, std::int64_t index) const {
    return levels_.members[static_cast<std::size_t>(host)][static_cast<std::size_t>(index)];
  }

  Levels levels_;
};

/// Returns the members of a group as [host][index]. Returns an empty list unless the group spans
/// several host groups with equally many members each, more than one.
std::vector<std::vector<std::int64_t>> even_host_groups(
    const std::vector<std::int64_t>& ranks, const std::vector<std::int64_t>& host_leader);

}  // namespace megatron
