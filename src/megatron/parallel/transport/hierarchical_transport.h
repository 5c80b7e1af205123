// A group whose ranks lie on several hosts, equally many on each: shared memory inside a host,
// messages between the ranks with the same index of all hosts. A large all-reduce is a
// reduce-scatter inside, an all-reduce across and an all-gather inside, so every byte leaves a host
// once. Sums are formed per host in the order of ranks, then over the hosts.
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
    std::shared_ptr<Transport> intra_host;  ///< the ranks of this host
    std::shared_ptr<Transport> inter_host;  ///< the ranks of the same index, one per host
    std::shared_ptr<Transport> flat;        ///< the whole group
    std::vector<std::vector<std::int64_t>>
        members;  ///< [host][index] → rank in the group; hosts in the order of `inter_host`
    std::int64_t host = 0, index = 0;  ///< of this rank
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

/// The members of a group by host group, [host][index] in the group; empty unless there are several
/// host groups, all with equally many, more than one.
std::vector<std::vector<std::int64_t>> even_host_groups(
    const std::vector<std::int64_t>& ranks, const std::vector<std::int64_t>& host_leader);

}  // namespace megatron
