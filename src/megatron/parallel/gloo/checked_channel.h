// A byte channel whose receiver compares a checksum of each transfer with that of its sender.
// Checksums of TCP and Ethernet miss what memory, adapters and switches change before or after they
// are computed, and wrong gradients would be trained on in silence.
#pragma once

#include <memory>

#include "megatron/parallel/gloo/byte_channel.h"

namespace megatron {

/// Returns a channel that sends checksums with each transfer over `channel`. The wait of a
/// receive throws DamagedTransfer when the bytes are not those that were sent. Both sides must use
/// it.
std::shared_ptr<ByteChannel> make_checked_channel(std::shared_ptr<ByteChannel> channel);

}  // namespace megatron
