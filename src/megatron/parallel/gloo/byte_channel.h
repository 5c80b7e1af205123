// Sends and receives bytes between ranks of a group that share no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace megatron {

/// Thrown when the bytes that arrived are not those that were sent.
class DamagedTransfer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Throws when the connection breaks, the timeout passes or the channel is cancelled, and
  /// DamagedTransfer on a channel that checks what it receives.
  virtual void wait() = 0;
};

/// A channel between all ranks of a group. Transfers with equal pair, direction and tag stay in
/// order. Both sides must pass the same number of bytes, at least one. A transfer that cannot start
/// fails in wait(). Every method is thread-safe.
class ByteChannel {
 public:
  virtual ~ByteChannel() = default;
  virtual std::unique_ptr<Transfer> start_send(std::int64_t to, std::uint32_t tag, const void* data,
                                               std::size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> start_receive(std::int64_t from, std::uint32_t tag, void* data,
                                                  std::size_t bytes) = 0;
  /// Makes present and future transfers fail.
  virtual void cancel() = 0;
};

/// Returns a channel that sends checksums with each transfer over `channel`. The wait of a
/// receive throws DamagedTransfer when the bytes are not those that were sent. Both sides must use
/// it. Checksums of TCP and Ethernet miss what memory, adapters and switches change before or after
/// they are computed, and wrong gradients would be trained on in silence.
std::shared_ptr<ByteChannel> make_checked_channel(std::shared_ptr<ByteChannel> channel);

}  // namespace megatron
