// One axis of the mesh as a layer sees it: the shard that this rank holds, the number of shards,
// and the group of ranks that hold them. A collective on an axis of size 1 is the identity.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace megatron {

class Comm;

struct Axis {
  std::string name = "tp";
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::shared_ptr<Comm> comm = {};  ///< Null when size is 1 or when only shapes are needed.
};

}  // namespace megatron
