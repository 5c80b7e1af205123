// A tensor of a checkpoint of Megatron-LM, and how its name and its axes become ours.
#pragma once

#include <map>
#include <string>

#include "megatron/checkpoint/manifest.h"

namespace megatron {

/// A global tensor. Its pieces have bytes in files (Piece::offset).
struct ForeignTensor {
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};
  std::vector<Piece> pieces = {};
};
using ForeignTensors = std::map<std::string, ForeignTensor>;

/// Adds the weights and optimizer states of a torch_dist checkpoint under our names. There layers
/// of one kind are one tensor with the layer as its first axis. Throws a UserError that names
/// `source` and a state whose form depends on the layout of the run that saved it.
void add_torch_dist_tensors(const ForeignTensors& theirs, const std::string& source,
                            Manifest& manifest);

}  // namespace megatron
