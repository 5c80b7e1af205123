#include "megatron/parallel/gloo/message_transport.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/byte_copy.h"
#include "megatron/parallel/shared_memory/reduction.h"

namespace megatron {
namespace {

constexpr std::uint32_t kCollectiveTag = 1, kMessageTag = 2;
/// Limits the memory for parts that wait to be reduced.
constexpr std::int64_t kChunkBytes = 64 << 20;
constexpr std::chrono::milliseconds kReasonTimeout{1500};

std::span<std::byte> part_of(std::byte* data, std::int64_t begin, std::int64_t bytes) {
  return {data + begin, static_cast<std::size_t>(bytes)};
}

template <class Message>
std::span<std::byte> message_bytes(Message& message) {
  return {reinterpret_cast<std::byte*>(&message), sizeof(Message)};
}

/// Returns the bytes if they travel.
std::span<std::byte> bytes_if(bool travel, std::span<std::byte> bytes) {
  return travel ? bytes : std::span<std::byte>{};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

MessageTransport::MessageTransport(std::shared_ptr<ByteChannel> channel,
                                   std::vector<std::int64_t> members, GroupInfo group_info,
                                   std::shared_ptr<HostStatus> host_status)
    : channel_(std::move(channel)),
      members_(std::move(members)),
      group_info_(std::move(group_info)),
      host_status_(std::move(host_status)) {}

void MessageTransport::run(const CommCall& call) {
  if (is_message(call.operation)) return dispatch(call);
  if (group_info_.size() > kMaxDirectSize) return run_through_first(call);
  const Handshakes handshakes = exchange_handshakes(call);
  compare(call, handshakes);
  if (is_small(call)) {
    if (call.out.defined())
      write_small_result(call, handshakes, group_info_.rank, bytes_of(call.out));
    return;
  }
  if (call.is_uneven() && call.operation == CommOperation::all_to_all)
    compare_rows(call, handshakes);
  dispatch(call);
}

// ---- transfers ----

/// Waits for a transfer. The cause of a peer's failure may arrive shortly after its connection has
/// closed, so an error waits for it. FailureMonitor ends a wait that is too long.
void MessageTransport::wait(const CommCall& call, Transfer& transfer, std::int64_t member) const {
  const WaitTable::Wait shown(host_status_->waits(), world_rank(group_info_.rank), call,
                              {world_rank(member)});
  try {
    return transfer.wait();
  } catch (const DamagedTransfer& error) {
    throw CommError(describe_with_place(call) + ": data from " + ranks_text({world_rank(member)}) +
                    " is damaged: " + error.what() +
                    " (memory, an adapter or the network of one of the two hosts is defective)");
  } catch (const std::exception& error) {
    const std::string rank = ranks_text({world_rank(member)});
    const std::string trouble = rank + " is gone (" + first_line(error.what()) + ")";
    const auto limit = std::chrono::steady_clock::now() + kReasonTimeout;
    while (!host_status_->failed() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    throw CommError(describe_with_place(call) + ": " +
                    (host_status_->failed() ? host_status_->failure() : trouble));
  }
}

void MessageTransport::exchange(const CommCall& call, const PartOf& out, const PartOf& in) {
  struct InFlight {
    std::int64_t member;
    std::unique_ptr<Transfer> transfer;
  };
  std::vector<InFlight> under_way;
  for (std::int64_t step = 1; step < group_info_.size(); ++step) {
    const std::int64_t from = (group_info_.rank + group_info_.size() - step) % group_info_.size();
    const std::span<std::byte> part = in(from);
    if (!part.empty())
      under_way.push_back(
          {from, channel_->start_receive(members_[static_cast<std::size_t>(from)], kCollectiveTag,
                                         part.data(), part.size())});
  }
  for (std::int64_t step = 1; step < group_info_.size(); ++step) {
    const std::int64_t to = (group_info_.rank + step) % group_info_.size();
    const std::span<std::byte> part = out(to);
    if (!part.empty())
      under_way.push_back({to, channel_->start_send(members_[static_cast<std::size_t>(to)],
                                                    kCollectiveTag, part.data(), part.size())});
  }
  for (const InFlight& one : under_way) wait(call, *one.transfer, one.member);
}

MessageTransport::Handshake MessageTransport::make_handshake(const CommCall& call) const {
  Handshake handshake{.header = make_header(call)};
  if (is_small(call) && call.in.defined())
    copy_bytes(handshake.input, bytes_of(call.in), num_bytes(call.in));
  if (call.is_uneven() && call.operation == CommOperation::all_to_all) {
    MEGATRON_CHECK(RowCountTable::bytes(group_info_.size()) <=
                       static_cast<std::int64_t>(sizeof(handshake.input)),
                   describe(call), ": the group of ", group_info_.size(), " ranks is too large");
    RowCountTable::write(call.rows, handshake.input);
  }
  return handshake;
}

MessageTransport::Handshakes MessageTransport::exchange_handshakes(const CommCall& call) {
  Handshakes handshakes(static_cast<std::size_t>(group_info_.size()));
  handshakes[static_cast<std::size_t>(group_info_.rank)] = make_handshake(call);
  const auto handshake = [&](std::int64_t member) {
    return message_bytes(handshakes[static_cast<std::size_t>(member)]);
  };
  exchange(
      call, [&](std::int64_t) { return handshake(group_info_.rank); }, handshake);
  return handshakes;
}

void MessageTransport::compare(const CommCall& call, const Handshakes& handshakes) const {
  const CallHeader& mine = handshakes[static_cast<std::size_t>(group_info_.rank)].header;
  for (std::int64_t member = 0; member < group_info_.size(); ++member) {
    const CallHeader& theirs = handshakes[static_cast<std::size_t>(member)].header;
    if (!is_same_call(mine, theirs))
      throw CommError(mismatch_text(call, group_info_, mine, member, theirs));
  }
}

void MessageTransport::compare_rows(const CommCall& call, const Handshakes& handshakes) const {
  RowCountTable table(group_info_.size());
  for (std::int64_t member = 0; member < group_info_.size(); ++member)
    table.read(member, handshakes[static_cast<std::size_t>(member)].input);
  table.check(call, group_info_.ranks);
}

// ---- large groups ----

void MessageTransport::run_through_first(const CommCall& call) {
  const bool is_first = group_info_.rank == 0;
  const std::size_t num_messages = is_first ? static_cast<std::size_t>(group_info_.size()) : 1;
  /// The message of a member on the first one, else the only one.
  const auto of_member = [&](auto& messages, std::int64_t member) {
    return message_bytes(messages[is_first ? static_cast<std::size_t>(member) : 0]);
  };
  Handshakes handshakes(num_messages);
  handshakes[0] = make_handshake(call);
  exchange(
      call,
      [&](std::int64_t member) { return bytes_if(member == 0, message_bytes(handshakes[0])); },
      [&](std::int64_t member) { return bytes_if(is_first, of_member(handshakes, member)); });
  const CallHeader own = handshakes[0].header;
  std::vector<Verdict> verdicts =
      is_first ? judge(call, handshakes) : std::vector<Verdict>(num_messages);
  handshakes.clear();
  exchange(
      call, [&](std::int64_t member) { return bytes_if(is_first, of_member(verdicts, member)); },
      [&](std::int64_t member) { return bytes_if(member == 0, message_bytes(verdicts[0])); });
  obey(call, verdicts[0], own);
}

/// Returns the verdict for each member. Called by the first one.
std::vector<MessageTransport::Verdict> MessageTransport::judge(const CommCall& call,
                                                               const Handshakes& handshakes) const {
  const auto with = [&](const Verdict& verdict) {
    return std::vector<Verdict>(handshakes.size(), verdict);
  };
  for (std::size_t member = 1; member < handshakes.size(); ++member) {
    const CallHeader& theirs = handshakes[member].header;
    if (is_same_call(handshakes[0].header, theirs)) continue;
    std::vector<Verdict> verdicts = with({.kind = Verdict::Kind::other_call,
                                          .member = static_cast<std::int64_t>(member),
                                          .header = theirs});
    for (std::size_t other = 1; other < handshakes.size(); ++other) {
      if (is_same_call(handshakes[0].header, handshakes[other].header)) continue;
      verdicts[other].member = 0;  // it differs itself
      verdicts[other].header = handshakes[0].header;
    }
    return verdicts;
  }
  if (call.is_uneven() && call.operation == CommOperation::all_to_all) {
    try {
      compare_rows(call, handshakes);
    } catch (const CommError& error) {
      Verdict verdict{.kind = Verdict::Kind::other_rows};
      const std::string text = std::string(error.what()).substr(0, sizeof(verdict.data) - 1);
      std::memcpy(verdict.data, text.c_str(), text.size() + 1);
      return with(verdict);
    }
  }
  std::vector<Verdict> verdicts = with({});
  if (!is_small(call) || !fits_verdict(call)) return verdicts;
  const bool is_equal_for_all = call.operation == CommOperation::all_reduce ||
                                call.operation == CommOperation::all_gather ||
                                call.operation == CommOperation::broadcast;
  write_small_result(call, handshakes, 0, verdicts[0].data);
  for (std::size_t member = 1; member < verdicts.size(); ++member) {
    if (is_equal_for_all)
      copy_bytes(verdicts[member].data, verdicts[0].data, num_bytes(call.out));
    else
      write_small_result(call, handshakes, static_cast<std::int64_t>(member),
                         verdicts[member].data);
  }
  return verdicts;
}

/// Throws if the calls differ, takes the result of a small call, or moves the data of a large one.
void MessageTransport::obey(const CommCall& call, const Verdict& verdict, const CallHeader& own) {
  if (verdict.kind == Verdict::Kind::other_call)
    throw CommError(mismatch_text(call, group_info_, own, verdict.member, verdict.header));
  if (verdict.kind == Verdict::Kind::other_rows)
    throw CommError(reinterpret_cast<const char*>(verdict.data));
  if (!call.out.defined()) return;
  if (!is_small(call) || !fits_verdict(call)) return dispatch(call);
  copy_bytes(bytes_of(call.out), verdict.data, num_bytes(call.out));
}

// ---- collectives ----

void MessageTransport::write_small_result(const CommCall& call, const Handshakes& handshakes,
                                          std::int64_t member, std::byte* out) const {
  const auto out_bytes = num_bytes(call.out), in_bytes = num_bytes(call.in);
  const bool reduces = call.operation == CommOperation::all_reduce ||
                       call.operation == CommOperation::reduce_scatter;
  const std::int64_t offset =
      call.operation == CommOperation::reduce_scatter ? member * out_bytes : 0;
  if (reduces) {
    std::vector<const void*> inputs;
    for (const Handshake& handshake : handshakes) inputs.push_back(handshake.input + offset);
    return reduce_inputs(out, inputs, call.out.numel(), call.out.scalar_type(), call.reduce);
  }
  if (call.operation == CommOperation::broadcast)
    return copy_bytes(out, handshakes[static_cast<std::size_t>(call.peer)].input, out_bytes);
  const bool gathers = call.operation == CommOperation::all_gather;
  const std::int64_t bytes = gathers ? in_bytes : in_bytes / group_info_.size();
  for (std::int64_t from = 0; from < group_info_.size(); ++from) {
    const std::byte* part =
        handshakes[static_cast<std::size_t>(from)].input + (gathers ? 0 : member * bytes);
    copy_bytes(out + from * bytes, part, bytes);
  }
}

void MessageTransport::all_reduce(const CommCall& call) {
  const auto item = static_cast<std::int64_t>(call.out.element_size());
  for (std::int64_t begin = 0, step = kChunkBytes / item; begin < call.out.numel(); begin += step) {
    all_reduce_chunk(call, bytes_of(call.out) + begin * item,
                     std::min(step, call.out.numel() - begin));
  }
}

/// Reduces this rank's part of the chunk and then gathers all parts.
void MessageTransport::all_reduce_chunk(const CommCall& call, std::byte* data,
                                        std::int64_t elements) {
  const auto item = static_cast<std::int64_t>(call.out.element_size());
  const std::int64_t share = (elements + group_info_.size() - 1) / group_info_.size();
  const auto part = [&](std::int64_t member) {
    const std::int64_t begin = std::min(member * share, elements);
    return part_of(data, begin * item, (std::min(begin + share, elements) - begin) * item);
  };
  const std::span<std::byte> mine = part(group_info_.rank);
  const auto bytes = static_cast<std::int64_t>(mine.size());
  exchange(call, part, received_parts(bytes));
  reduce_received(call, mine.data(), mine.data(), bytes);
  exchange(
      call, [&](std::int64_t) { return mine; }, part);
}

void MessageTransport::all_gather(const CommCall& call) {
  const Parts parts(call.out, call.rows.out, group_info_.size());
  const std::int64_t own = parts.bytes(group_info_.rank);
  exchange(
      call, [&](std::int64_t) { return part_of(bytes_of(call.in), 0, own); },
      [&](std::int64_t member) {
        return part_of(bytes_of(call.out), parts.begin(member), parts.bytes(member));
      });
  copy_bytes(bytes_of(call.out) + parts.begin(group_info_.rank), bytes_of(call.in), own);
}

void MessageTransport::reduce_scatter(const CommCall& call) {
  const auto bytes = num_bytes(call.out);
  const std::int64_t step = std::max<std::int64_t>(kChunkBytes / group_info_.size() / 64 * 64, 64);
  for (std::int64_t begin = 0; begin < bytes; begin += step) {
    const std::int64_t count = std::min(bytes - begin, step);
    const auto part = [&](std::int64_t member) {
      return part_of(bytes_of(call.in), member * bytes + begin, count);
    };
    exchange(call, part, received_parts(count));
    reduce_received(call, bytes_of(call.out) + begin, part(group_info_.rank).data(), count);
  }
}

MessageTransport::PartOf MessageTransport::received_parts(std::int64_t bytes) {
  received_.resize(
      std::max(received_.size(), static_cast<std::size_t>(bytes * group_info_.size())));
  return [this, bytes](std::int64_t member) {
    return part_of(received_.data(), member * bytes, bytes);
  };
}

void MessageTransport::reduce_received(const CommCall& call, std::byte* out, const std::byte* own,
                                       std::int64_t bytes) {
  std::vector<const void*> inputs;
  for (std::int64_t member = 0; member < group_info_.size(); ++member)
    inputs.push_back(member == group_info_.rank ? own : received_.data() + member * bytes);
  reduce_inputs(out, inputs, bytes / static_cast<std::int64_t>(call.out.element_size()),
                call.out.scalar_type(), call.reduce);
}

void MessageTransport::all_to_all(const CommCall& call) {
  const Parts in(call.in, call.rows.in, group_info_.size()),
      out(call.out, call.rows.out, group_info_.size());
  exchange(
      call,
      [&](std::int64_t member) {
        return part_of(bytes_of(call.in), in.begin(member), in.bytes(member));
      },
      [&](std::int64_t member) {
        return part_of(bytes_of(call.out), out.begin(member), out.bytes(member));
      });
  copy_bytes(bytes_of(call.out) + out.begin(group_info_.rank),
             bytes_of(call.in) + in.begin(group_info_.rank), in.bytes(group_info_.rank));
}

/// The root sends each rank one part and all ranks gather the parts, so that the root sends the
/// tensor twice and not once per rank.
void MessageTransport::broadcast(const CommCall& call) {
  const auto bytes = num_bytes(call.out);
  const std::int64_t share = (bytes + group_info_.size() - 1) / group_info_.size();
  const auto part = [&](std::int64_t member) {
    const std::int64_t begin = std::min(member * share, bytes);
    return part_of(bytes_of(call.out), begin, std::min(begin + share, bytes) - begin);
  };
  exchange(
      call,
      [&](std::int64_t member) { return bytes_if(group_info_.rank == call.peer, part(member)); },
      [&](std::int64_t member) { return bytes_if(member == call.peer, part(group_info_.rank)); });
  exchange(
      call,
      [&](std::int64_t member) { return bytes_if(member != call.peer, part(group_info_.rank)); },
      [&](std::int64_t member) { return bytes_if(group_info_.rank != call.peer, part(member)); });
}

// ---- messages ----

void MessageTransport::send(const CommCall& call) {
  const std::int64_t to = members_[static_cast<std::size_t>(call.peer)];
  Handshake handshake{.header = make_header(call)};
  if (fits(call.in)) copy_bytes(handshake.input, bytes_of(call.in), num_bytes(call.in));
  const auto first = channel_->start_send(to, kMessageTag, &handshake, sizeof(handshake));
  const auto rest =
      fits(call.in) ? nullptr
                    : channel_->start_send(to, kMessageTag, call.in.data_ptr(), call.in.nbytes());
  wait(call, *first, call.peer);
  if (rest) wait(call, *rest, call.peer);
}

void MessageTransport::receive(const CommCall& call) {
  const std::int64_t from = members_[static_cast<std::size_t>(call.peer)];
  Handshake handshake;
  const auto first = channel_->start_receive(from, kMessageTag, &handshake, sizeof(handshake));
  wait(call, *first, call.peer);
  const CallHeader mine = make_header(call);
  if (!is_matching_message(mine, handshake.header))
    throw CommError(mismatch_text(call, group_info_, mine, call.peer, handshake.header));
  if (fits(call.out)) return copy_bytes(bytes_of(call.out), handshake.input, num_bytes(call.out));
  wait(call, *channel_->start_receive(from, kMessageTag, call.out.data_ptr(), call.out.nbytes()),
       call.peer);
}

}  // namespace megatron
