// Collectives built from point-to-point messages. Each call begins with a handshake between all
// pairs, which carries the call header and, when it is small, the whole input, or the row counts of
// an uneven all-to-all. In a large group the first member receives the handshakes, and answers with
// what it has found and the result of a small call: 2 N messages in place of N². Larger tensors are
// sent in parts to the rank that reduces them. Sums are formed in rank order, so they are
// bit-identical to those of shared memory.
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
#include "megatron/parallel/transport/parts.h"
#include "megatron/parallel/transport/transport.h"

namespace megatron {

class MessageTransport final : public OperationTransport {
 public:
  /// `members` maps each rank of the group to its rank in the channel.
  MessageTransport(std::shared_ptr<ByteChannel> channel, std::vector<std::int64_t> members,
                   GroupInfo group_info, std::shared_ptr<HostStatus> host_status);
  void run(const CommCall& call) override;
  void cancel() override { channel_->cancel(); }

 private:
  static constexpr std::size_t kHandshakeBytes = 8192;
  /// The largest group in which every pair exchanges handshakes: one message's delay each way.
  static constexpr std::int64_t kMaxDirectSize = 16;
  struct Handshake {
    CallHeader header;
    std::byte input[kHandshakeBytes - sizeof(CallHeader)];
  };
  using Handshakes = std::vector<Handshake>;
  /// What the first member of a large group answers.
  struct Verdict {
    enum class Kind : std::uint8_t { equal, other_call, other_rows };
    Kind kind = Kind::equal;
    std::int64_t member = 0;  ///< with `other_call`: the one whose call differs
    CallHeader header;        ///< with `other_call`: of that member
    std::byte data[kHandshakeBytes - sizeof(CallHeader)];  ///< a result, or text with `other_rows`
  };
  /// Returns the bytes to send to a member, or the buffer to receive into from it.
  using PartOf = std::function<std::span<std::byte>(std::int64_t member)>;

  static bool fits(const at::Tensor& input) {
    return !input.defined() || input.nbytes() <= sizeof(Handshake::input);
  }
  /// Returns whether the handshake carries the whole input. Sizes of an uneven call differ between
  /// ranks, so its input never travels so.
  static bool is_small(const CommCall& call) { return !call.is_uneven() && fits(call.in); }
  static bool fits_verdict(const CommCall& call) {
    return call.out.defined() && call.out.nbytes() <= sizeof(Verdict::data);
  }
  Handshake make_handshake(const CommCall& call) const;
  Handshakes exchange_handshakes(const CommCall& call);
  /// Throws CommError when the row counts of an uneven all-to-all disagree.
  void compare_rows(const CommCall& call, const Handshakes& handshakes) const;
  void compare(const CommCall& call, const Handshakes& handshakes) const;
  /// Writes the output of a small call of a member.
  void write_small_result(const CommCall& call, const Handshakes& handshakes, std::int64_t member,
                          std::byte* out) const;
  void run_through_first(const CommCall& call);
  std::vector<Verdict> judge(const CommCall& call, const Handshakes& handshakes) const;
  void obey(const CommCall& call, const Verdict& verdict, const CallHeader& own);
  void barrier(const CommCall& /*call*/) override {}  ///< The handshake already synchronizes.
  void all_reduce(const CommCall& call) override;
  void all_reduce_chunk(const CommCall& call, std::byte* data, std::int64_t elements);
  void all_gather(const CommCall& call) override;
  void reduce_scatter(const CommCall& call) override;
  void all_to_all(const CommCall& call) override;
  void broadcast(const CommCall& call) override;
  void send(const CommCall& call) override;
  void receive(const CommCall& call) override;

  /// Returns receive buffers of `bytes` for every other member.
  PartOf received_parts(std::int64_t bytes);
  /// Reduces the received buffers and this rank's part `own` into `out`, in rank order.
  void reduce_received(const CommCall& call, std::byte* out, const std::byte* own,
                       std::int64_t bytes);

  /// Sends out(m) to every other member m and receives in(m) from it. Empty parts are not sent.
  void exchange(const CommCall& call, const PartOf& out, const PartOf& in);
  void wait(const CommCall& call, Transfer& transfer, std::int64_t member) const;
  std::int64_t world_rank(std::int64_t member) const {
    return group_info_.ranks[static_cast<std::size_t>(member)];
  }

  std::shared_ptr<ByteChannel> channel_;
  std::vector<std::int64_t> members_;
  GroupInfo group_info_;
  std::shared_ptr<HostStatus> host_status_;
  std::vector<std::byte> received_;  ///< Receive buffers of the current collective.
};

}  // namespace megatron
