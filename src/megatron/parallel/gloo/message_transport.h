// Collectives made of messages. A call begins with a handshake between all pairs: what each is
// about to do, and its whole input when that is small. Larger tensors follow in parts, each to the
// rank that adds it; sums are formed in the order of ranks, so they have the bits of shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "megatron/parallel/gloo/byte_channel.h"
#include "megatron/parallel/shared_memory/spin_wait.h"
#include "megatron/parallel/transport/call_header.h"
#include "megatron/parallel/transport/transport.h"

namespace megatron {

class MessageTransport final : public OperationTransport {
 public:
  /// `members`: the channel's rank of each rank of the group.
  MessageTransport(std::shared_ptr<ByteChannel> channel, std::vector<std::int64_t> members,
                   GroupInfo group_info, std::shared_ptr<HostStatus> host_status);
  void run(const CommCall& call) override;
  void cancel() override { channel_->cancel(); }

 private:
  static constexpr std::size_t kHandshakeBytes = 8192;
  struct Handshake {
    CallHeader header;
    std::byte input[kHandshakeBytes - sizeof(CallHeader)];
  };
  using Handshakes = std::vector<Handshake>;
  /// Where the bytes for, or of, a member lie.
  using PartOf = std::function<std::span<std::byte>(std::int64_t member)>;

  static bool fits(const at::Tensor& input) {
    return !input.defined() || input.nbytes() <= sizeof(Handshake::input);
  }
  Handshakes exchange_handshakes(const CommCall& call);
  void compare(const CommCall& call, const Handshakes& handshakes) const;
  void finish_small(const CommCall& call, const Handshakes& handshakes);
  void barrier(const CommCall& /*call*/) override {}  ///< the handshake was all
  void all_reduce(const CommCall& call) override;
  void all_reduce_chunk(const CommCall& call, std::byte* data, std::int64_t elements);
  void all_gather(const CommCall& call) override;
  void reduce_scatter(const CommCall& call) override;
  void all_to_all(const CommCall& call) override;
  void broadcast(const CommCall& call) override;
  void send(const CommCall& call) override;
  void receive(const CommCall& call) override;

  /// Room for a part of `bytes` of every member, and their sum with this rank's own, in the order
  /// of ranks.
  PartOf received_parts(std::int64_t bytes);
  void reduce_received(const CommCall& call, std::byte* out, const std::byte* own,
                       std::int64_t bytes);

  /// Sends out(m) to every other member m and receives in(m) from it; empty parts do not travel.
  void exchange(const CommCall& call, const PartOf& out, const PartOf& in);
  void wait(const CommCall& call, Transfer& transfer, std::int64_t member) const;
  std::int64_t world_rank(std::int64_t member) const {
    return group_info_.ranks[static_cast<std::size_t>(member)];
  }

  std::shared_ptr<ByteChannel> channel_;
  std::vector<std::int64_t> members_;
  GroupInfo group_info_;
  std::shared_ptr<HostStatus> host_status_;
  std::vector<std::byte> received_;  ///< of the collective under way
};

}  // namespace megatron
