#include "megatron/parallel/shared_memory/shared_memory_transport.h"

#include <algorithm>

#include "megatron/base/cpu_instructions.h"
#include "megatron/base/division.h"
#include "megatron/base/error.h"
#include "megatron/parallel/shared_memory/reduction.h"

namespace megatron {
namespace {

/// Up to this size, one round in which every rank reduces everything is fastest.
constexpr std::int64_t kOneShotBytes = 8 << 10;
constexpr std::int64_t kShareAlignment = 64;  ///< bytes
/// From this size on, the copy mode of slots matters.
constexpr std::int64_t kProbedBytes = 32 << 10;
/// From this size on, the caches do not hold a result until it is used.
constexpr std::int64_t kNonTemporalBytes = 16 << 20;

/// Returns the size of the larger tensor.
std::int64_t largest_bytes(const CommCall& call) {
  return std::max(num_bytes(call.out), num_bytes(call.in));
}

/// Returns at least 1, because an empty call still synchronizes.
std::int64_t chunks_of(std::int64_t total, std::int64_t step) {
  return std::max<std::int64_t>(1, ceil_div(total, step));
}

CopyMode result_copy_mode(std::int64_t bytes) {
  return bytes < kNonTemporalBytes ? CopyMode::cached : CopyMode::non_temporal;
}

/// A range of elements or bytes.
struct Range {
  std::int64_t begin, count;
};

Range range_of(std::int64_t index, std::int64_t step, std::int64_t total) {
  const std::int64_t begin = std::min(index * step, total);
  return {begin, std::min(step, total - begin)};
}

}  // namespace

SharedMemoryTransport::SharedMemoryTransport(SharedMemoryArea area, const GroupInfo& group_info,
                                             std::shared_ptr<HostStatus> host_status,
                                             std::chrono::milliseconds timeout)
    : area_(std::move(area)),
      spin_wait_(group_info, std::move(host_status), timeout),
      rank_(group_info.rank),
      size_(group_info.size()) {
  constexpr std::int64_t kMostRanks = kSlotBytes / kShareAlignment;
  if (size_ > kMostRanks)
    throw UserError({"a group of " + std::to_string(size_) + " ranks on one host",
                     "shared memory serves at most " + std::to_string(kMostRanks),
                     "start fewer ranks on a host, or use --cpu-transport gloo"});
}

void SharedMemoryTransport::run(const CommCall& call) {
  if (!is_message(call.operation)) {
    publish_header(call);
    choose_copy_mode(call);
  }
  dispatch(call);
}

// ---- rounds ----

void SharedMemoryTransport::publish_header(const CommCall& call) {
  area_.control(rank_).headers[++call_ % 2] = make_header(call);
}

void SharedMemoryTransport::compare_headers(const CommCall& call) {
  const CallHeader& mine = area_.control(rank_).headers[call_ % 2];
  for (std::int64_t member = 0; member < size_; ++member) {
    const CallHeader& theirs = area_.control(member).headers[call_ % 2];
    if (!is_same_call(mine, theirs))
      throw CommError(mismatch_text(call, spin_wait_.group_info(), mine, member, theirs));
  }
}

/// Chooses non-temporal writes when distant ranks read the slot, because they then read it faster
/// from memory than from this rank's cache. One distant pair is enough, since a slot has many
/// readers. Each rank decides for its own slots. A measurement may come from an earlier call.
void SharedMemoryTransport::choose_copy_mode(const CommCall& call) {
  probes_distance_ = largest_bytes(call) >= kProbedBytes;
  slot_copy_mode_ = CopyMode::cached;
  if (!probes_distance_) return;
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.control(member).is_far.load(std::memory_order_relaxed))
      slot_copy_mode_ = CopyMode::non_temporal;
  }
  area_.control(rank_).probe.touch(call_);
}

/// Probes another member in every call.
void SharedMemoryTransport::probe_cache_distance() {
  const auto step = static_cast<std::int64_t>(call_ % static_cast<std::uint64_t>(size_ - 1));
  const bool is_far = area_.control((rank_ + 1 + step) % size_).probe.is_far(call_);
  area_.control(rank_).is_far.store(is_far, std::memory_order_relaxed);
}

bool SharedMemoryTransport::is_complete(std::uint64_t round) const {
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.control(member).announced.load() <= round) return false;
  }
  return true;
}

std::vector<std::int64_t> SharedMemoryTransport::missing(std::uint64_t round) const {
  std::vector<std::int64_t> members;
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.control(member).announced.load() <= round) members.push_back(member);
  }
  return members;
}

/// The store releases this rank's writes (slot, header) and orders its reads of earlier rounds
/// before it; a load by another rank acquires both. The stores and loads of all ranks are
/// sequentially consistent, so the last rank to announce sees the round complete and wakes the
/// sleeping ranks.
void SharedMemoryTransport::announce(std::uint64_t round) {
  non_temporal_fence();
  area_.control(rank_).announced.store(round + 1);
  if (is_complete(round)) area_.event().notify_all();
}

void SharedMemoryTransport::wait_for_round(const CommCall& call, std::uint64_t round) {
  if (is_complete(round)) return;
  spin_wait_.wait(
      area_.event(), call, [&] { return is_complete(round); }, [&] { return missing(round); });
}

template <class Write, class Read>
void SharedMemoryTransport::run_rounds(const CommCall& call, std::int64_t count, const Write& write,
                                       const Read& read) {
  const auto begin = [&](std::int64_t round) {
    write(round, slot_of(rank_, round));
    announce(round_ + static_cast<std::uint64_t>(round));
  };
  begin(0);
  for (std::int64_t round = 0; round < count; ++round) {
    if (round + 1 < count) begin(round + 1);
    wait_for_round(call, round_ + static_cast<std::uint64_t>(round));
    if (round == 0) {
      compare_headers(call);
      if (probes_distance_) probe_cache_distance();
    }
    read(round);
  }
  non_temporal_fence();
  round_ += static_cast<std::uint64_t>(count);
}

std::int64_t SharedMemoryTransport::largest_share() const {
  return kSlotBytes / size_ / kShareAlignment * kShareAlignment;
}

// ---- collectives ----

void SharedMemoryTransport::barrier(const CommCall& call) {
  run_rounds(
      call, 1, [](std::int64_t, std::byte*) {}, [](std::int64_t) {});
}

void SharedMemoryTransport::all_reduce(const CommCall& call) {
  const std::int64_t bytes = num_bytes(call.out);
  if (bytes <= kOneShotBytes) return all_reduce_one_shot(call);
  const std::int64_t num_chunks = chunks_of(bytes, size_ * largest_share());
  const std::int64_t share =
      ceil_div(ceil_div(bytes, num_chunks * size_), kShareAlignment) * kShareAlignment;
  all_reduce_chunks(call, chunks_of(bytes, size_ * share), share);
}

void SharedMemoryTransport::all_reduce_one_shot(const CommCall& call) {
  const std::int64_t bytes = num_bytes(call.out);
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  run_rounds(
      call, 1, [&](std::int64_t, std::byte* slot) { copy_bytes(slot, bytes_of(call.out), bytes); },
      [&](std::int64_t round) {
        for (std::int64_t member = 0; member < size_; ++member)
          inputs[static_cast<std::size_t>(member)] = slot_of(member, round);
        reduce_inputs(call.out.data_ptr(), inputs, call.out.numel(), call.out.scalar_type(),
                      call.reduce);
      });
}

/// Each rank reduces its own share of every chunk. In its slot of round k, a rank puts the other
/// ranks' shares of chunk k and, in place of its own share, its result for chunk k − 2, which it
/// has computed while reading round k − 2.
void SharedMemoryTransport::all_reduce_chunks(const CommCall& call, std::int64_t num_chunks,
                                              std::int64_t share) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size()),
                     bytes = num_bytes(call.out);
  const CopyMode result_mode = result_copy_mode(bytes);
  std::byte* data = bytes_of(call.out);
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  const auto part = [&](std::int64_t chunk, std::int64_t member) {
    return range_of(chunk * size_ + member, share, bytes);
  };
  const auto write = [&](std::int64_t round, std::byte* slot) {
    for (std::int64_t member = 0; member < size_ && round < num_chunks; ++member) {
      const Range theirs = part(round, member);
      if (member != rank_)
        copy_bytes(slot + member * share, data + theirs.begin, theirs.count, slot_copy_mode_);
    }
  };
  const auto reduce = [&](std::int64_t round) {
    const Range mine = part(round, rank_);
    for (std::int64_t member = 0; member < size_; ++member) {
      inputs[static_cast<std::size_t>(member)] =
          member == rank_ ? data + mine.begin : slot_of(member, round) + rank_ * share;
    }
    reduce_inputs(data + mine.begin, inputs, mine.count / item, call.out.scalar_type(), call.reduce,
                  {.to = slot_of(rank_, round + 2) + rank_ * share, .mode = slot_copy_mode_});
  };
  const auto collect = [&](std::int64_t round) {
    for (std::int64_t member = 0; member < size_; ++member) {
      const Range theirs = part(round - 2, member);
      if (member != rank_)
        copy_bytes(data + theirs.begin, slot_of(member, round) + member * share, theirs.count,
                   result_mode);
    }
  };
  run_rounds(call, num_chunks + 2, write, [&](std::int64_t round) {
    if (round < num_chunks) reduce(round);
    if (round >= 2) collect(round);
  });
}

void SharedMemoryTransport::all_gather(const CommCall& call) {
  const Parts parts(call.out, call.rows.out, size_);
  const CopyMode result_mode = result_copy_mode(parts.total());
  const std::byte* in = bytes_of(call.in);
  run_rounds(
      call, chunks_of(parts.largest(), kSlotBytes),
      [&](std::int64_t round, std::byte* slot) {
        const Range chunk = range_of(round, kSlotBytes, parts.bytes(rank_));
        copy_bytes(slot, in + chunk.begin, chunk.count, slot_copy_mode_);
      },
      [&](std::int64_t round) {
        for (std::int64_t member = 0; member < size_; ++member) {
          const Range chunk = range_of(round, kSlotBytes, parts.bytes(member));
          const std::byte* from = member == rank_ ? in + chunk.begin : slot_of(member, round);
          copy_bytes(bytes_of(call.out) + parts.begin(member) + chunk.begin, from, chunk.count,
                     result_mode);
        }
      });
}

/// Writes, for each other rank in rank order, this round's piece of that rank's part of `in`.
void SharedMemoryTransport::write_parts(std::byte* slot, const at::Tensor& in, const Parts& parts,
                                        Piece piece) const {
  for (std::int64_t member = 0; member < size_; ++member) {
    if (member == rank_) continue;
    const Range chunk = range_of(piece.round, piece.step, parts.bytes(member));
    copy_bytes(slot + member * piece.step, bytes_of(in) + parts.begin(member) + chunk.begin,
               chunk.count, slot_copy_mode_);
  }
}

void SharedMemoryTransport::reduce_scatter(const CommCall& call) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size()),
                     bytes = num_bytes(call.out);
  const std::int64_t step = largest_share();
  const Parts parts(call.in, {}, size_);
  const std::byte* own = bytes_of(call.in) + parts.begin(rank_);
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  run_rounds(
      call, chunks_of(parts.largest(), step),
      [&](std::int64_t round, std::byte* slot) {
        write_parts(slot, call.in, parts, {round, step});
      },
      [&](std::int64_t round) {
        const Range chunk = range_of(round, step, bytes);
        for (std::int64_t member = 0; member < size_; ++member) {
          inputs[static_cast<std::size_t>(member)] =
              member == rank_ ? own + chunk.begin : slot_of(member, round) + rank_ * step;
        }
        reduce_inputs(bytes_of(call.out) + chunk.begin, inputs, chunk.count / item,
                      call.out.scalar_type(), call.reduce);
      });
}

void SharedMemoryTransport::all_to_all(const CommCall& call) {
  const Parts in(call.in, call.rows.in, size_), out(call.out, call.rows.out, size_);
  const std::int64_t step = largest_share(),
                     largest = call.is_uneven() ? exchange_row_counts(call) * row_bytes(call.in)
                                                : in.largest();
  const CopyMode result_mode = result_copy_mode(out.total());
  const std::byte* own = bytes_of(call.in) + in.begin(rank_);
  run_rounds(
      call, chunks_of(largest, step),
      [&](std::int64_t round, std::byte* slot) {
        write_parts(slot, call.in, in, {round, step});
      },
      [&](std::int64_t round) {
        for (std::int64_t member = 0; member < size_; ++member) {
          const Range chunk = range_of(round, step, out.bytes(member));
          const std::byte* from =
              member == rank_ ? own + chunk.begin : slot_of(member, round) + rank_ * step;
          copy_bytes(bytes_of(call.out) + out.begin(member) + chunk.begin, from, chunk.count,
                     result_mode);
        }
      });
}

std::int64_t SharedMemoryTransport::exchange_row_counts(const CommCall& call) {
  MEGATRON_CHECK(RowCountTable::bytes(size_) <= kSlotBytes, describe(call), ": the group of ",
                 size_, " ranks is too large");
  RowCountTable table(size_);
  run_rounds(
      call, 1, [&](std::int64_t, std::byte* slot) { RowCountTable::write(call.rows, slot); },
      [&](std::int64_t round) {
        for (std::int64_t member = 0; member < size_; ++member)
          table.read(member, slot_of(member, round));
      });
  table.check(call, spin_wait_.group_info().ranks);
  return table.largest();
}

void SharedMemoryTransport::broadcast(const CommCall& call) {
  const std::int64_t bytes = num_bytes(call.out);
  std::byte* data = bytes_of(call.out);
  run_rounds(
      call, chunks_of(bytes, kSlotBytes),
      [&](std::int64_t round, std::byte* slot) {
        const Range chunk = range_of(round, kSlotBytes, bytes);
        if (rank_ == call.peer) copy_bytes(slot, data + chunk.begin, chunk.count, slot_copy_mode_);
      },
      [&](std::int64_t round) {
        const Range chunk = range_of(round, kSlotBytes, bytes);
        if (rank_ != call.peer)
          copy_bytes(data + chunk.begin, slot_of(call.peer, round), chunk.count,
                     result_copy_mode(bytes));
      });
}

// ---- messages ----

void SharedMemoryTransport::send(const CommCall& call) {
  MessageRing& ring = area_.ring(rank_, call.peer);
  const CallHeader header = make_header(call);
  const std::int64_t bytes = num_bytes(call.in), num_pieces = chunks_of(bytes, area_.piece_bytes());
  for (std::int64_t number = 0; number < num_pieces; ++number) {
    const Range piece = range_of(number, area_.piece_bytes(), bytes);
    const std::uint64_t index = ring.written.load();
    spin_wait_.wait(
        ring.event, call, [&] { return index - ring.read.load() < kRingDepth; },
        [&] { return std::vector<std::int64_t>{call.peer}; });
    ring.headers[index % kRingDepth] = header;
    copy_bytes(area_.piece(rank_, call.peer, index), bytes_of(call.in) + piece.begin, piece.count);
    ring.written.store(index + 1);
    ring.event.notify_all();
  }
}

void SharedMemoryTransport::receive(const CommCall& call) {
  MessageRing& ring = area_.ring(call.peer, rank_);
  const CallHeader header = make_header(call);
  const std::int64_t bytes = num_bytes(call.out),
                     num_pieces = chunks_of(bytes, area_.piece_bytes());
  for (std::int64_t number = 0; number < num_pieces; ++number) {
    const Range piece = range_of(number, area_.piece_bytes(), bytes);
    const std::uint64_t index = ring.read.load();
    spin_wait_.wait(
        ring.event, call, [&] { return ring.written.load() > index; },
        [&] { return std::vector<std::int64_t>{call.peer}; });
    const CallHeader& sent = ring.headers[index % kRingDepth];
    if (!is_matching_message(header, sent))
      throw CommError(mismatch_text(call, spin_wait_.group_info(), header, call.peer, sent));
    copy_bytes(bytes_of(call.out) + piece.begin, area_.piece(call.peer, rank_, index), piece.count);
    ring.read.store(index + 1);
    ring.event.notify_all();
  }
}

}  // namespace megatron
