// One axis of the mesh as a layer sees it: which of `size` shards this rank holds. A collective on an axis of size 1 is the identity.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

struct Axis {
  std::string name = "tp";
  std::int64_t rank = 0;
  std::int64_t size = 1;
};

}  // namespace megatron
