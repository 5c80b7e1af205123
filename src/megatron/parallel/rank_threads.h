// N ranks as N threads of this process: how tests and checks run a layout without a launcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "megatron/parallel/communicators.h"

namespace megatron {

struct RankThreadOptions {
  std::chrono::milliseconds timeout{60'000};  ///< of every operation
};

/// Calls `body` in `world_size` threads, each with one intra-op thread and communicators of its
/// own. When one throws, the others' calls fail; the first failure is thrown again here, after all
/// have ended.
void run_rank_threads(std::int64_t world_size, const std::function<void(Communicators&)>& body,
                      const RankThreadOptions& options = {});

}  // namespace megatron
