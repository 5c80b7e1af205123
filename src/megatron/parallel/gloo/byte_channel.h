// Bytes between the ranks of a group that share no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace megatron {

class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Throws when the connection breaks, the timeout passes or the channel is cancelled.
  virtual void wait() = 0;
};

/// Transfers of one pair, direction and tag keep their order; both sides must name the same number
/// of bytes, at least one. Any thread may call.
class ByteChannel {
 public:
  virtual ~ByteChannel() = default;
  virtual std::unique_ptr<Transfer> start_send(std::int64_t to, std::uint32_t tag, const void* data,
                                               std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> start_receive(std::int64_t from, std::uint32_t tag, void* data,
                                                  std::size_t bytes) = 0;
  /// Ends present and future transfers.
  virtual void cancel() = 0;
};

}  // namespace megatron
