// Host memory that holds the tensors of a save while a thread writes them and training goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "megatron/checkpoint/shard_writer.h"

namespace megatron {

class HostSnapshot {
 public:
  /// Copies the tensors of `items`, which from then on read the copies. The memory of the snapshot
  /// before is used again, so its items must have been written.
  void take(std::vector<WriteItem>& items);
  /// Begins a new snapshot.
  void restart() { num_used_ = 0; }

 private:
  std::vector<at::Tensor> buffers_;  ///< uint8, page-locked for tensors of a GPU
  std::size_t num_used_ = 0;
};

}  // namespace megatron
