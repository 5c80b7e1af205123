#include "megatron/parallel/transport/exchange_transport.h"

#include <algorithm>

#include "megatron/parallel/transport/reduction.h"

namespace megatron {
namespace {

constexpr std::int64_t kAtOnceBytes = 8 << 10;     ///< up to here one round in which every rank adds everything beats sharing the work
constexpr std::int64_t kShareAlignment = 64;       ///< bytes
constexpr std::int64_t kMeasuredBytes = 32 << 10;  ///< from here on it matters how slots are written
constexpr std::int64_t kStreamBytes = 16 << 20;    ///< from here on the caches will not hold a result until it is used

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Of the larger tensor.
std::int64_t bytes_of(const CommCall& call) {
  const auto bytes = [](const at::Tensor& tensor) { return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0; };
  return std::max(bytes(call.out), bytes(call.in));
}

/// At least 1: an empty call is still a meeting.
std::int64_t chunks_of(std::int64_t total, std::int64_t step) { return std::max<std::int64_t>(1, ceil_div(total, step)); }

CopyWay way_of_result(std::int64_t bytes) { return bytes < kStreamBytes ? CopyWay::cached : CopyWay::streamed; }

/// A piece of a tensor or a part of it.
struct Range {
  std::int64_t begin, count;
};

Range range_of(std::int64_t index, std::int64_t step, std::int64_t total) {
  const std::int64_t begin = std::min(index * step, total);
  return {begin, std::min(step, total - begin)};
}

}  // namespace

ExchangeTransport::ExchangeTransport(ExchangeArea area, GroupPlace place, std::shared_ptr<RankBoard> board, std::chrono::milliseconds timeout)
    : area_(std::move(area)), patience_(place, std::move(board), timeout), rank_(place.rank), size_(place.size()) {}

void ExchangeTransport::run(const CommCall& call) {
  const bool is_message = call.operation == CommOperation::send || call.operation == CommOperation::recv;
  if (!is_message) {
    introduce(call);
    choose_way(call);
  }
  dispatch(call);
}

// ---- rounds ----

void ExchangeTransport::introduce(const CommCall& call) { area_.cell(rank_).headers[++call_ % 2] = header_of(call); }

void ExchangeTransport::compare_headers(const CommCall& call) {
  const CallHeader& mine = area_.cell(rank_).headers[call_ % 2];
  for (std::int64_t member = 0; member < size_; ++member) {
    const CallHeader& theirs = area_.cell(member).headers[call_ % 2];
    if (!same(mine, theirs)) throw CommError(disagreement(call, patience_.place(), mine, member, theirs));
  }
}

/// A slot that other ranks read from far away is better written to memory than left in this rank's cache. One far pair is enough, since a slot has
/// many readers. Every rank decides for its own slots; what it reads here may be of this call or of an earlier one.
void ExchangeTransport::choose_way(const CommCall& call) {
  measures_ = bytes_of(call) >= kMeasuredBytes;
  slot_way_ = CopyWay::cached;
  if (!measures_) return;
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.cell(member).is_far.load(std::memory_order_relaxed)) slot_way_ = CopyWay::streamed;
  }
  area_.cell(rank_).probe.renew(call_);
}

/// Of another member in every call.
void ExchangeTransport::measure_distance() {
  const auto step = static_cast<std::int64_t>(call_ % static_cast<std::uint64_t>(size_ - 1));
  const bool is_far = area_.cell((rank_ + 1 + step) % size_).probe.is_far(call_);
  area_.cell(rank_).is_far.store(is_far, std::memory_order_relaxed);
}

bool ExchangeTransport::complete(std::uint64_t round) const {
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.cell(member).announced.load() <= round) return false;
  }
  return true;
}

std::vector<std::int64_t> ExchangeTransport::missing(std::uint64_t round) const {
  std::vector<std::int64_t> members;
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.cell(member).announced.load() <= round) members.push_back(member);
  }
  return members;
}

/// The store releases what this rank wrote (slot, header) and keeps its reads of earlier rounds before it; whoever loads it acquires both. Stores and
/// loads of all ranks have one order (sequentially consistent), so the last to announce sees the round complete, and wakes those who sleep.
void ExchangeTransport::announce(std::uint64_t round) {
  finish_streams();
  area_.cell(rank_).announced.store(round + 1);
  if (complete(round)) area_.bell().ring();
}

void ExchangeTransport::await(const CommCall& call, std::uint64_t round) {
  if (complete(round)) return;
  patience_.wait(
      area_.bell(), call, [&] { return complete(round); }, [&] { return missing(round); });
}

template <class Write, class Read>
void ExchangeTransport::rounds(const CommCall& call, std::int64_t count, const Write& write, const Read& read) {
  const auto begin = [&](std::int64_t round) {
    write(round, slot_of(rank_, round));
    announce(round_ + static_cast<std::uint64_t>(round));
  };
  begin(0);
  for (std::int64_t round = 0; round < count; ++round) {
    if (round + 1 < count) begin(round + 1);
    await(call, round_ + static_cast<std::uint64_t>(round));
    if (round == 0) {
      compare_headers(call);
      if (measures_) measure_distance();
    }
    read(round);
  }
  finish_streams();
  round_ += static_cast<std::uint64_t>(count);
}

std::int64_t ExchangeTransport::largest_share() const { return kSlotBytes / size_ / kShareAlignment * kShareAlignment; }

// ---- collectives ----

void ExchangeTransport::barrier(const CommCall& call) {
  rounds(
      call, 1, [](std::int64_t, std::byte*) {}, [](std::int64_t) {});
}

void ExchangeTransport::all_reduce(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.out.nbytes());
  if (bytes <= kAtOnceBytes) return all_reduce_at_once(call);
  const std::int64_t num_chunks = chunks_of(bytes, size_ * largest_share());
  const std::int64_t share = ceil_div(ceil_div(bytes, num_chunks * size_), kShareAlignment) * kShareAlignment;
  all_reduce_chunks(call, chunks_of(bytes, size_ * share), share);
}

void ExchangeTransport::all_reduce_at_once(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.out.nbytes());
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  rounds(
      call, 1, [&](std::int64_t, std::byte* slot) { copy_bytes(slot, bytes_of(call.out), bytes); },
      [&](std::int64_t round) {
        for (std::int64_t member = 0; member < size_; ++member) inputs[static_cast<std::size_t>(member)] = slot_of(member, round);
        reduce_inputs(call.out.data_ptr(), inputs, call.out.numel(), call.out.scalar_type(), call.reduce);
      });
}

/// Of every chunk each rank reduces its own share. The slot of round k holds the other ranks' shares of chunk k and, where this rank's share would
/// be, what this rank made of chunk k − 2, written while it read round k − 2.
void ExchangeTransport::all_reduce_chunks(const CommCall& call, std::int64_t num_chunks, std::int64_t share) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size()), bytes = static_cast<std::int64_t>(call.out.nbytes());
  const CopyWay result_way = way_of_result(bytes);
  std::byte* data = bytes_of(call.out);
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  const auto part = [&](std::int64_t chunk, std::int64_t member) { return range_of(chunk * size_ + member, share, bytes); };
  const auto write = [&](std::int64_t round, std::byte* slot) {
    for (std::int64_t member = 0; member < size_ && round < num_chunks; ++member) {
      const Range theirs = part(round, member);
      if (member != rank_) copy_bytes(slot + member * share, data + theirs.begin, theirs.count, slot_way_);
    }
  };
  const auto reduce = [&](std::int64_t round) {
    const Range mine = part(round, rank_);
    for (std::int64_t member = 0; member < size_; ++member) {
      inputs[static_cast<std::size_t>(member)] = member == rank_ ? data + mine.begin : slot_of(member, round) + rank_ * share;
    }
    reduce_inputs(data + mine.begin, inputs, mine.count / item, call.out.scalar_type(), call.reduce,
                  {.to = slot_of(rank_, round + 2) + rank_ * share, .way = slot_way_});
  };
  const auto collect = [&](std::int64_t round) {
    for (std::int64_t member = 0; member < size_; ++member) {
      const Range theirs = part(round - 2, member);
      if (member != rank_) copy_bytes(data + theirs.begin, slot_of(member, round) + member * share, theirs.count, result_way);
    }
  };
  rounds(call, num_chunks + 2, write, [&](std::int64_t round) {
    if (round < num_chunks) reduce(round);
    if (round >= 2) collect(round);
  });
}

void ExchangeTransport::all_gather(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.in.nbytes());
  const CopyWay result_way = way_of_result(bytes * size_);
  const std::byte* in = bytes_of(call.in);
  rounds(
      call, chunks_of(bytes, kSlotBytes),
      [&](std::int64_t round, std::byte* slot) {
        const Range chunk = range_of(round, kSlotBytes, bytes);
        copy_bytes(slot, in + chunk.begin, chunk.count, slot_way_);
      },
      [&](std::int64_t round) {
        const Range chunk = range_of(round, kSlotBytes, bytes);
        for (std::int64_t member = 0; member < size_; ++member) {
          const std::byte* from = member == rank_ ? in + chunk.begin : slot_of(member, round);
          copy_bytes(bytes_of(call.out) + member * bytes + chunk.begin, from, chunk.count, result_way);
        }
      });
}

/// Of what each of the others is to have of `in`, the piece of a round, in the order of the ranks.
void ExchangeTransport::write_parts(std::byte* slot, const at::Tensor& in, Piece piece) const {
  const std::int64_t bytes = static_cast<std::int64_t>(in.nbytes()) / size_;
  const Range chunk = range_of(piece.round, piece.step, bytes);
  for (std::int64_t member = 0; member < size_; ++member) {
    if (member != rank_) copy_bytes(slot + member * piece.step, bytes_of(in) + member * bytes + chunk.begin, chunk.count, slot_way_);
  }
}

void ExchangeTransport::reduce_scatter(const CommCall& call) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size()), bytes = static_cast<std::int64_t>(call.out.nbytes());
  const std::int64_t step = largest_share();
  const std::byte* in = bytes_of(call.in);
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  rounds(
      call, chunks_of(bytes, step),
      [&](std::int64_t round, std::byte* slot) {
        write_parts(slot, call.in, {round, step});
      },
      [&](std::int64_t round) {
        const Range chunk = range_of(round, step, bytes);
        for (std::int64_t member = 0; member < size_; ++member) {
          inputs[static_cast<std::size_t>(member)] = member == rank_ ? in + rank_ * bytes + chunk.begin : slot_of(member, round) + rank_ * step;
        }
        reduce_inputs(bytes_of(call.out) + chunk.begin, inputs, chunk.count / item, call.out.scalar_type(), call.reduce);
      });
}

void ExchangeTransport::all_to_all(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.in.nbytes()) / size_, step = largest_share();
  const CopyWay result_way = way_of_result(bytes * size_);
  const std::byte* in = bytes_of(call.in);
  rounds(
      call, chunks_of(bytes, step),
      [&](std::int64_t round, std::byte* slot) {
        write_parts(slot, call.in, {round, step});
      },
      [&](std::int64_t round) {
        const Range chunk = range_of(round, step, bytes);
        for (std::int64_t member = 0; member < size_; ++member) {
          const std::byte* from = member == rank_ ? in + rank_ * bytes + chunk.begin : slot_of(member, round) + rank_ * step;
          copy_bytes(bytes_of(call.out) + member * bytes + chunk.begin, from, chunk.count, result_way);
        }
      });
}

void ExchangeTransport::broadcast(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.out.nbytes());
  std::byte* data = bytes_of(call.out);
  rounds(
      call, chunks_of(bytes, kSlotBytes),
      [&](std::int64_t round, std::byte* slot) {
        const Range chunk = range_of(round, kSlotBytes, bytes);
        if (rank_ == call.peer) copy_bytes(slot, data + chunk.begin, chunk.count, slot_way_);
      },
      [&](std::int64_t round) {
        const Range chunk = range_of(round, kSlotBytes, bytes);
        if (rank_ != call.peer) copy_bytes(data + chunk.begin, slot_of(call.peer, round), chunk.count, way_of_result(bytes));
      });
}

// ---- messages ----

void ExchangeTransport::send(const CommCall& call) {
  MessageRing& ring = area_.ring(rank_, call.peer);
  const CallHeader header = header_of(call);
  const std::int64_t bytes = static_cast<std::int64_t>(call.in.nbytes()), num_pieces = chunks_of(bytes, area_.piece_bytes());
  for (std::int64_t number = 0; number < num_pieces; ++number) {
    const Range piece = range_of(number, area_.piece_bytes(), bytes);
    const std::uint64_t index = ring.written.load();
    patience_.wait(
        ring.bell, call, [&] { return index - ring.read.load() < kRingDepth; }, [&] { return std::vector<std::int64_t>{call.peer}; });
    ring.headers[index % kRingDepth] = header;
    copy_bytes(area_.piece(rank_, call.peer, index), bytes_of(call.in) + piece.begin, piece.count);
    ring.written.store(index + 1);
    ring.bell.ring();
  }
}

void ExchangeTransport::receive(const CommCall& call) {
  MessageRing& ring = area_.ring(call.peer, rank_);
  const CallHeader header = header_of(call);
  const std::int64_t bytes = static_cast<std::int64_t>(call.out.nbytes()), num_pieces = chunks_of(bytes, area_.piece_bytes());
  for (std::int64_t number = 0; number < num_pieces; ++number) {
    const Range piece = range_of(number, area_.piece_bytes(), bytes);
    const std::uint64_t index = ring.read.load();
    patience_.wait(
        ring.bell, call, [&] { return ring.written.load() > index; }, [&] { return std::vector<std::int64_t>{call.peer}; });
    const CallHeader& sent = ring.headers[index % kRingDepth];
    if (!same_message(header, sent)) throw CommError(disagreement(call, patience_.place(), header, call.peer, sent));
    copy_bytes(bytes_of(call.out) + piece.begin, area_.piece(call.peer, rank_, index), piece.count);
    ring.read.store(index + 1);
    ring.bell.ring();
  }
}

}  // namespace megatron
