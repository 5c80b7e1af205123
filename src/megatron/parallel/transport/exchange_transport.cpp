#include "megatron/parallel/transport/exchange_transport.h"

#include <algorithm>
#include <cstring>

#include "megatron/parallel/transport/reduction.h"

namespace megatron {
namespace {

constexpr std::int64_t kAtOnceBytes = 8 << 10;  ///< up to here one round in which every rank adds everything beats two rounds
constexpr std::int64_t kPartAlignment = 64;     ///< elements

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// Calls body(begin, count) for the pieces of [0, total); once, with no elements, when total is 0: an empty call is still a meeting.
template <class Body>
void for_chunks(std::int64_t total, std::int64_t step, const Body& body) {
  std::int64_t begin = 0;
  do {
    body(begin, std::min(step, total - begin));
    begin += step;
  } while (begin < total);
}

}  // namespace

ExchangeTransport::ExchangeTransport(ExchangeArea area, GroupPlace place, std::shared_ptr<RankBoard> board, std::chrono::milliseconds timeout)
    : area_(std::move(area)), patience_(place, std::move(board), timeout), rank_(place.rank), size_(place.size()) {}

void ExchangeTransport::run(const CommCall& call) {
  const bool is_message = call.operation == CommOperation::send || call.operation == CommOperation::recv;
  if (!is_message) announce(call);
  dispatch(call);
}

// ---- rounds ----

void ExchangeTransport::announce(const CommCall& call) {
  area_.cell(rank_).headers[++call_ % 2] = header_of(call);
  announced_ = false;
}

bool ExchangeTransport::complete() const {
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.cell(member).round.load() <= round_) return false;
  }
  return true;
}

std::vector<std::int64_t> ExchangeTransport::missing() const {
  std::vector<std::int64_t> members;
  for (std::int64_t member = 0; member < size_; ++member) {
    if (area_.cell(member).round.load() <= round_) members.push_back(member);
  }
  return members;
}

/// The last to arrive sees the round complete and wakes the others.
void ExchangeTransport::arrive(const CommCall& call) {
  area_.cell(rank_).round.store(round_ + 1);
  if (complete()) {
    area_.bell().ring();
  } else {
    patience_.wait(
        area_.bell(), call, [this] { return complete(); }, [this] { return missing(); });
  }
}

void ExchangeTransport::compare_headers(const CommCall& call) {
  if (announced_) return;
  announced_ = true;
  const CallHeader& mine = area_.cell(rank_).headers[call_ % 2];
  for (std::int64_t member = 0; member < size_; ++member) {
    const CallHeader& theirs = area_.cell(member).headers[call_ % 2];
    if (!same(mine, theirs)) throw CommError(disagreement(call, patience_.place(), mine, member, theirs));
  }
}

template <class Write, class Read>
void ExchangeTransport::round(const CommCall& call, const Write& write, const Read& read) {
  write(area_.slot(rank_, round_));
  arrive(call);
  compare_headers(call);
  read();
  ++round_;
}

// ---- collectives ----

void ExchangeTransport::barrier(const CommCall& call) {
  round(
      call, [](std::byte*) {}, [] {});
}

void ExchangeTransport::all_reduce(const CommCall& call) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size());
  if (call.out.numel() * item <= kAtOnceBytes) return all_reduce_at_once(call);
  for_chunks(call.out.numel(), kSlotBytes / item, [&](std::int64_t begin, std::int64_t count) { all_reduce_chunk(call, {begin, count}); });
}

void ExchangeTransport::all_reduce_at_once(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.out.nbytes());
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  round(
      call, [&](std::byte* slot) { copy_bytes(slot, bytes_of(call.out), bytes); },
      [&] {
        for (std::int64_t member = 0; member < size_; ++member) inputs[static_cast<std::size_t>(member)] = slot_of(member);
        reduce_inputs(call.out.data_ptr(), inputs, call.out.numel(), call.out.scalar_type(), call.reduce);
      });
}

/// Each rank reduces its part of the chunk, then all collect the parts.
void ExchangeTransport::all_reduce_chunk(const CommCall& call, Range chunk) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size());
  std::byte* data = bytes_of(call.out) + chunk.begin * item;
  const std::int64_t share = ((chunk.count + size_ - 1) / size_ + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  const auto part = [&](std::int64_t member) {
    const std::int64_t begin = std::min(member * share, chunk.count);
    return Range{begin * item, (std::min(begin + share, chunk.count) - begin) * item};
  };
  const Range mine = part(rank_);
  round(
      call,
      [&](std::byte* slot) {
        copy_bytes(slot, data, mine.begin);
        copy_bytes(slot + mine.begin + mine.count, data + mine.begin + mine.count, chunk.count * item - mine.begin - mine.count);
      },
      [&] {
        std::vector<const void*> inputs;
        for (std::int64_t member = 0; member < size_; ++member) inputs.push_back((member == rank_ ? data : slot_of(member)) + mine.begin);
        reduce_inputs(data + mine.begin, inputs, mine.count / item, call.out.scalar_type(), call.reduce);
      });
  round(
      call, [&](std::byte* slot) { copy_bytes(slot, data + mine.begin, mine.count); },
      [&] {
        for (std::int64_t member = 0; member < size_; ++member) {
          if (member != rank_) copy_bytes(data + part(member).begin, slot_of(member), part(member).count);
        }
      });
}

void ExchangeTransport::all_gather(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.in.nbytes());
  for_chunks(bytes, kSlotBytes, [&](std::int64_t begin, std::int64_t count) {
    round(
        call, [&](std::byte* slot) { copy_bytes(slot, bytes_of(call.in) + begin, count); },
        [&] {
          for (std::int64_t member = 0; member < size_; ++member) {
            copy_bytes(bytes_of(call.out) + member * bytes + begin, member == rank_ ? bytes_of(call.in) + begin : slot_of(member), count);
          }
        });
  });
}

void ExchangeTransport::reduce_scatter(const CommCall& call) {
  const std::int64_t item = static_cast<std::int64_t>(call.out.element_size()), bytes = static_cast<std::int64_t>(call.out.nbytes());
  const std::int64_t step = kSlotBytes / size_ / kPartAlignment * kPartAlignment;
  for_chunks(bytes, step, [&](std::int64_t begin, std::int64_t count) {
    const std::byte* in = bytes_of(call.in) + begin;
    round(
        call,
        [&](std::byte* slot) {
          for (std::int64_t member = 0; member < size_; ++member) {
            if (member != rank_) copy_bytes(slot + member * step, in + member * bytes, count);
          }
        },
        [&] {
          std::vector<const void*> inputs;
          for (std::int64_t member = 0; member < size_; ++member) {
            inputs.push_back(member == rank_ ? in + rank_ * bytes : slot_of(member) + rank_ * step);
          }
          reduce_inputs(bytes_of(call.out) + begin, inputs, count / item, call.out.scalar_type(), call.reduce);
        });
  });
}

void ExchangeTransport::all_to_all(const CommCall& call) {
  const std::int64_t bytes = static_cast<std::int64_t>(call.in.nbytes()) / size_, step = kSlotBytes / size_ / kPartAlignment * kPartAlignment;
  for_chunks(bytes, step, [&](std::int64_t begin, std::int64_t count) {
    round(
        call,
        [&](std::byte* slot) {
          for (std::int64_t member = 0; member < size_; ++member) copy_bytes(slot + member * step, bytes_of(call.in) + member * bytes + begin, count);
        },
        [&] {
          for (std::int64_t member = 0; member < size_; ++member) {
            copy_bytes(bytes_of(call.out) + member * bytes + begin, slot_of(member) + rank_ * step, count);
          }
        });
  });
}

void ExchangeTransport::broadcast(const CommCall& call) {
  for_chunks(static_cast<std::int64_t>(call.out.nbytes()), kSlotBytes, [&](std::int64_t begin, std::int64_t count) {
    round(
        call,
        [&](std::byte* slot) {
          if (rank_ == call.peer) copy_bytes(slot, bytes_of(call.out) + begin, count);
        },
        [&] {
          if (rank_ != call.peer) copy_bytes(bytes_of(call.out) + begin, slot_of(call.peer), count);
        });
  });
}

// ---- messages ----

void ExchangeTransport::send(const CommCall& call) {
  MessageRing& ring = area_.ring(rank_, call.peer);
  const CallHeader header = header_of(call);
  for_chunks(static_cast<std::int64_t>(call.in.nbytes()), area_.piece_bytes(), [&](std::int64_t begin, std::int64_t count) {
    const std::uint64_t index = ring.written.load();
    patience_.wait(
        ring.bell, call, [&] { return index - ring.read.load() < kRingDepth; }, [&] { return std::vector<std::int64_t>{call.peer}; });
    ring.headers[index % kRingDepth] = header;
    copy_bytes(area_.piece(rank_, call.peer, index), bytes_of(call.in) + begin, count);
    ring.written.store(index + 1);
    ring.bell.ring();
  });
}

void ExchangeTransport::receive(const CommCall& call) {
  MessageRing& ring = area_.ring(call.peer, rank_);
  const CallHeader header = header_of(call);
  for_chunks(static_cast<std::int64_t>(call.out.nbytes()), area_.piece_bytes(), [&](std::int64_t begin, std::int64_t count) {
    const std::uint64_t index = ring.read.load();
    patience_.wait(
        ring.bell, call, [&] { return ring.written.load() > index; }, [&] { return std::vector<std::int64_t>{call.peer}; });
    const CallHeader& sent = ring.headers[index % kRingDepth];
    if (!same_message(header, sent)) throw CommError(disagreement(call, patience_.place(), header, call.peer, sent));
    copy_bytes(bytes_of(call.out) + begin, area_.piece(call.peer, rank_, index), count);
    ring.read.store(index + 1);
    ring.bell.ring();
  });
}

}  // namespace megatron
