// A byte channel over Gloo's TCP connections (c10d::ProcessGroupGloo).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "megatron/parallel/gloo/byte_channel.h"

namespace c10d {
class Store;
}

namespace megatron {

struct GlooOptions {
  std::int64_t rank = 0, size = 1;  ///< Rank in the group, size of the group.
  std::string address = {};         ///< Address of this host as others reach it. Empty: 127.0.0.1.
  std::chrono::milliseconds timeout{600'000};  ///< Limit of connecting; transfers: one minute more.
};

/// Connects to every rank of the group. Collective over the group. `store` must be used for nothing
/// else.
std::shared_ptr<ByteChannel> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                          const GlooOptions& options);

}  // namespace megatron
