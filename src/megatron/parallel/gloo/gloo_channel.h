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
  std::int64_t rank = 0, size = 1;  ///< in the group
  std::string address = {};         ///< of this host as the others reach it; empty: 127.0.0.1
  std::chrono::milliseconds timeout{600'000};  ///< of connecting; transfers wait a minute longer
};

/// Connects to every rank of the group. Collective over it; `store` holds nothing else.
std::shared_ptr<ByteChannel> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                          const GlooOptions& options);

}  // namespace megatron
