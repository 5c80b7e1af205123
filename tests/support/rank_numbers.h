// Helpers for tests of many ranks: lists of ranks, and the text of what a run of them ends with.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "megatron/parallel/rank_threads.h"

namespace megatron {

/// 0, 1, …, count − 1.
inline std::vector<std::int64_t> first_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) ranks.push_back(i);
  return ranks;
}

/// The text of the exception that the rank threads end with; "no error" without one.
inline std::string failure_of_ranks(std::int64_t world_size,
                                    const std::function<void(Communicators&)>& body,
                                    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  try {
    run_rank_threads(world_size, body, {.timeout = timeout});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace megatron
