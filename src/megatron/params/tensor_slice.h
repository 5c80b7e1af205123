// A rectangular part of a global tensor. Shards, the pieces of a checkpoint, and what is read and
// written are all described by it.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

using Shape = std::vector<std::int64_t>;

/// A rectangular slice of a global tensor and its place in the tensor that holds it: a rank's local
/// tensor, or a tensor of its own in a file. All members have the tensor's number of dimensions.
struct TensorSlice {
  Shape global_offset, local_offset, shape;
  bool operator==(const TensorSlice&) const = default;
};

}  // namespace megatron
