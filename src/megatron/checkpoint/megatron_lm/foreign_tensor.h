// A tensor of a checkpoint of Megatron-LM, and how its name and its axes become ours.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "megatron/checkpoint/manifest.h"
#include "megatron/params/sharding.h"

namespace megatron {

/// A global tensor. Its pieces have bytes in files (Piece::offset).
struct ForeignTensor {
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};
  std::vector<Piece> pieces = {};
};
using ForeignTensors = std::map<std::string, ForeignTensor>;

/// The weights and the states of layers that a model has, and what else places them.
struct DeclaredTensors {
  /// Returns the name in the model of a tensor that Megatron-LM may have saved under another: a
  /// norm stands alone or in the linear layer behind it. Returns other names as they are.
  std::string our_name(std::string name) const;

  std::map<std::string, Sharding> shardings;
  std::set<std::string> states;  ///< those of `shardings` that are no weights
  std::int64_t head_size = 0;
  bool has_own_output = false;  ///< an output layer that is not the embedding
};

/// Adds the weights and optimizer states of a torch_dist checkpoint under our names. There layers
/// of one kind are one tensor with the layer as its first axis. The optimizer is left out of the
/// manifest if its states are missing, or have the form of one run's buffers, which depends on its
/// layout. UserErrors name `source` and a tensor that the model does not have.
void add_torch_dist_tensors(const ForeignTensors& theirs, const DeclaredTensors& declared,
                            const std::string& source, Manifest& manifest);

/// Where a torch_dist checkpoint has one of our tensors.
struct TorchDistPlace {
  std::string name = {};
  Shape stack = {}, offset = {};  ///< the axes before those of ours, and where ours is along them
};

/// Returns the place of a tensor of the model, or of what the optimizer keeps for it in `state`
/// ("exp_avg."). `num_stacked` layers are one tensor; 0: each layer has names of its own.
TorchDistPlace torch_dist_place(const std::string& state, std::string name,
                                std::int64_t num_stacked);

}  // namespace megatron
