// Helpers for tests of many ranks: lists of ranks, and the error text of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "megatron/parallel/rank_threads.h"

namespace megatron {

/// Returns 0, 1, …, count − 1.
inline std::vector<std::int64_t> first_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) ranks.push_back(i);
  return ranks;
}

/// Returns the text of the exception that the rank threads throw, or "no error".
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
