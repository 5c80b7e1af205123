// Weights by our names, whatever they are stored in: our checkpoint or a Hugging Face directory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "megatron/checkpoint/box_math.h"
#include "megatron/params/param_store.h"

namespace megatron {

struct WeightInfo {
  std::string name;
  Shape shape;  ///< global
  at::ScalarType type = at::kFloat;
};

/// Not thread-safe: readers keep what they read last.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  /// Ascending by name.
  virtual const std::vector<WeightInfo>& weights() const = 0;
  /// Null when there is none of that name.
  const WeightInfo* find(const std::string& name) const;
  /// Copies a region of the global tensor into `destination` (shape of the region), converting its
  /// type.
  virtual void copy_region(const std::string& name, const Region& region,
                           at::Tensor destination) = 0;
  /// The whole global tensor in its stored type.
  at::Tensor read(const std::string& name);
};

/// Fills `flat`, the elements of `piece`, from the global tensor `name`; local padding becomes
/// zero.
void fill_piece(WeightReader& reader, const ParameterPiece& piece, const std::string& name,
                at::Tensor flat);

/// Fills every parameter of the store exactly once. UserError naming tensors that are missing, of
/// another shape, or in no rank's part of the model. Collective over store.model_axis().
void fill_store(WeightReader& reader, const std::string& source, ParamStore& store);

}  // namespace megatron
