// A byte channel over Gloo's TCP connections (c10d::ProcessGroupGloo). Two ranks connect when one
// of them first has something for the other, so a group has only the connections that it uses.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "megatron/control/run_store.h"
#include "megatron/parallel/gloo/byte_channel.h"

namespace megatron {

struct GlooOptions {
  std::int64_t rank = 0, size = 1;  ///< Rank in the group, size of the group.
  std::string address = {};         ///< Address of this host as others reach it. Empty: 127.0.0.1.
  /// After which FailureMonitor ends a transfer. The channel's own limit is a day longer.
  std::chrono::milliseconds timeout{600'000};
};

/// Returns the channel of this rank, without waiting for the others. `store` must be that of the
/// group and used for nothing else. Throws a UserError if Gloo cannot listen at the address.
std::shared_ptr<ByteChannel> make_gloo_channel(const RunStore& store, const GlooOptions& options);

}  // namespace megatron
