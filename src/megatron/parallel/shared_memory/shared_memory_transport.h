// Collectives and messages through memory that all ranks of the group share. A collective is a
// sequence of rounds. Every rank writes into its slot of a round and announces the round; once all
// have announced it, every rank reads the others' slots. Ranks write one round ahead of the round
// that they read, so that no rank waits between two rounds while all keep pace. Four slots (round r
// uses slot r mod 4) are enough over all collectives of the group:
//  1. A rank announces round r only after it has read round r − 2.
//  2. A rank writes into the slot of round r only after it has seen all ranks announce r − 2. By 1
//     they have then read r − 4, the last user of that slot.
//  3. While a rank reads round r, it has seen all ranks announce r, so by 1 they have read r − 2.
//     It may then write into its slot of r + 2, which it has not announced yet.
// The first round of a collective is written after the last round of the previous one has been
// read, so 1 and 2 hold across collectives. A header is overwritten two calls later, when all ranks
// have announced the last round of the call in between and have thus left the header's call.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/parallel/shared_memory/byte_copy.h"
#include "megatron/parallel/shared_memory/shared_memory_area.h"
#include "megatron/parallel/shared_memory/spin_wait.h"
#include "megatron/parallel/transport/parts.h"
#include "megatron/parallel/transport/transport.h"

namespace megatron {

class SharedMemoryTransport final : public OperationTransport {
 public:
  SharedMemoryTransport(SharedMemoryArea area, const GroupInfo& group_info,
                        std::shared_ptr<HostStatus> host_status, std::chrono::milliseconds timeout);
  void run(const CommCall& call) override;
  void cancel() override { spin_wait_.cancel(); }

 private:
  void barrier(const CommCall& call) override;
  void all_reduce(const CommCall& call) override;
  void all_reduce_one_shot(const CommCall& call);
  void all_reduce_chunks(const CommCall& call, std::int64_t num_chunks, std::int64_t share);
  void all_gather(const CommCall& call) override;
  void reduce_scatter(const CommCall& call) override;
  void all_to_all(const CommCall& call) override;
  void broadcast(const CommCall& call) override;
  void send(const CommCall& call) override;
  void receive(const CommCall& call) override;

  /// Runs `count` rounds, numbered from 0. In each it calls write(round, slot) for this rank's slot
  /// and, once all ranks have announced the round, read(round) to read the others' slots.
  template <class Write, class Read>
  void run_rounds(const CommCall& call, std::int64_t count, const Write& write, const Read& read);
  /// The piece of a part that a round carries, and the length of a piece.
  struct Piece {
    std::int64_t round, step;
  };
  void write_parts(std::byte* slot, const at::Tensor& in, const Parts& parts, Piece piece) const;
  /// Exchanges the row counts of an uneven all-to-all, in a round of their own. Returns the largest
  /// number of rows that one rank sends to another. Throws CommError when the ranks disagree.
  std::int64_t exchange_row_counts(const CommCall& call);
  void publish_header(const CommCall& call);
  void compare_headers(const CommCall& call);
  void choose_copy_mode(const CommCall& call);
  void probe_cache_distance();
  void announce(std::uint64_t round);
  void wait_for_round(const CommCall& call, std::uint64_t round);
  bool is_complete(std::uint64_t round) const;
  std::vector<std::int64_t> missing(std::uint64_t round) const;
  std::byte* slot_of(std::int64_t member, std::int64_t round) const {
    return area_.slot(member, round_ + static_cast<std::uint64_t>(round));
  }
  /// Returns the bytes of a slot available to each rank, a multiple of every element size.
  std::int64_t largest_share() const;

  SharedMemoryArea area_;
  SpinWait spin_wait_;
  std::int64_t rank_, size_;
  std::uint64_t round_ = 0;       ///< Number of rounds of finished collectives.
  std::uint64_t call_ = 0;        ///< Number of collectives begun.
  bool probes_distance_ = false;  ///< This call is large enough for the copy mode to matter.
  CopyMode slot_copy_mode_ = CopyMode::cached;  ///< Copy mode of this call.
};

}  // namespace megatron
