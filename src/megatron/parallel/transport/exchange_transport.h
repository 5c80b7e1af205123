// Collectives and messages through memory that all ranks of the group share. A collective is a sequence of rounds: every rank writes into its
// slot, all arrive, every rank reads the others' slots. Slots alternate between two, so one arrival per round is enough.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/parallel/transport/exchange_area.h"
#include "megatron/parallel/transport/patience.h"
#include "megatron/parallel/transport/transport.h"

namespace megatron {

class ExchangeTransport final : public OperationTransport {
 public:
  ExchangeTransport(ExchangeArea area, GroupPlace place, std::shared_ptr<RankBoard> board, std::chrono::milliseconds timeout);
  void run(const CommCall& call) override;
  void cancel() override { patience_.cancel(); }

 private:
  struct Range {
    std::int64_t begin, count;
  };
  void barrier(const CommCall& call) override;
  void all_reduce(const CommCall& call) override;
  void all_reduce_at_once(const CommCall& call);
  void all_reduce_chunk(const CommCall& call, Range chunk);
  void all_gather(const CommCall& call) override;
  void reduce_scatter(const CommCall& call) override;
  void all_to_all(const CommCall& call) override;
  void broadcast(const CommCall& call) override;
  void send(const CommCall& call) override;
  void receive(const CommCall& call) override;

  /// Writes this rank's slot with write(slot), waits until all have, then read()s the others' slots of the same round.
  template <class Write, class Read>
  void round(const CommCall& call, const Write& write, const Read& read);
  void announce(const CommCall& call);
  void arrive(const CommCall& call);
  void compare_headers(const CommCall& call);
  bool complete() const;
  std::vector<std::int64_t> missing() const;
  const std::byte* slot_of(std::int64_t member) const { return area_.slot(member, round_); }

  ExchangeArea area_;
  Patience patience_;
  std::int64_t rank_, size_;
  std::uint64_t round_ = 0;  ///< completed rounds
  std::uint64_t call_ = 0;   ///< collectives begun
  bool announced_ = false;   ///< the header of this call has been compared
};

}  // namespace megatron
