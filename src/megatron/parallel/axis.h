// One axis of the mesh as a layer sees it: which of `size` shards this rank holds, and the group it
// shares them with. A collective on an axis of size 1 is the identity.
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
  std::shared_ptr<Comm> comm = {};  ///< null when size is 1, and where only shapes matter
};

}  // namespace megatron
