// Which ranks share memory. Found by trying: ranks that name the same host open a block of their first rank, and those that succeed are a place.
// (Containers on one machine need not see each other's processes.)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/parallel/process_communicators.h"
#include "megatron/parallel/transport/rank_board.h"
#include "megatron/parallel/transport/store_talk.h"

namespace megatron {

struct Places {
  std::vector<std::int64_t> first_of;  ///< per rank of the world, the first rank of its place
  std::shared_ptr<RankBoard> board;    ///< of this rank's place
};

/// Collective over the world. Throws UserError when shared memory is demanded and a rank of this host cannot be reached.
Places find_places(const StoreTalk& talk, const ProcessOptions& options);

}  // namespace megatron
