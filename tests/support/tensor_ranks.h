// Tensor-parallel rank threads.
#pragma once

#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"

namespace megatron {

struct TensorLayout {
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  TensorParallelOptions options = {};

  std::string name() const {
    return "tp" + std::to_string(tp) + (sequence_parallel ? "_sp" : "") +
           (options.overlap_chunks > 1 ? "_chunks" : "") +
           (options.async_allreduce ? "" : "_no_async");
  }
};

/// Returns the rank of `communicators` in a world of tensor-parallel ranks only.
inline Rank tensor_rank(const TensorLayout& layout, Communicators& communicators) {
  Rank rank;
  rank.index = communicators.rank();
  std::vector<std::int64_t> all(static_cast<std::size_t>(layout.tp));
  std::iota(all.begin(), all.end(), 0);
  rank.tp = {
      .name = "tp", .rank = rank.index, .size = layout.tp, .comm = communicators.group(all, "tp")};
  rank.sequence_parallel = layout.sequence_parallel;
  rank.tp_options = layout.options;
  return rank;
}

/// Runs `body` on every rank of `layout`.
inline void on_tensor_ranks(const TensorLayout& layout,
                            const std::function<void(const Rank&, Communicators&)>& body) {
  run_rank_threads(layout.tp,
                   [&](Communicators& communicators) {
                     body(tensor_rank(layout, communicators), communicators);
                   },
                   {.timeout = std::chrono::milliseconds(20'000)});
}

}  // namespace megatron
