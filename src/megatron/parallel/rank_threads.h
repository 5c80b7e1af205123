// Runs N ranks as N threads of this process, so that tests need no launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "megatron/parallel/communicators.h"

namespace megatron {

struct RankThreadOptions {
  std::chrono::milliseconds timeout{60'000};  ///< Limit of every operation.
};

/// Calls `body` in `world_size` threads, each with one intra-op thread and its own communicators.
/// When one call throws, the communication of the others fails. After all threads have ended,
/// rethrows the first failure.
void run_rank_threads(std::int64_t world_size, const std::function<void(Communicators&)>& body,
                      const RankThreadOptions& options = {});

}  // namespace megatron
