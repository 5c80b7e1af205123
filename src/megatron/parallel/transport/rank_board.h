// What the ranks of one host (or process) know of each other: who has left, who is dead, and the first failure, which ends every wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/parallel/transport/shared_block.h"

namespace megatron {

class RankBoard {
 public:
  static std::size_t bytes(std::int64_t world_size);
  /// `block` is the same memory for all ranks.
  RankBoard(std::shared_ptr<SharedBlock> block, std::int64_t world_size);

  /// The first reason stays.
  void fail(const std::string& reason);
  bool failed() const;
  /// Empty while nothing has failed.
  std::string failure() const;

  /// `rank` (of the world) makes no further call.
  void leave(std::int64_t rank);
  bool has_left(std::int64_t rank) const;

 private:
  struct Memory;
  Memory& memory() const;
  std::shared_ptr<SharedBlock> block_;
};

}  // namespace megatron
