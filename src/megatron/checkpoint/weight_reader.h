// Reads weights by parameter name from a native checkpoint or a Hugging Face directory.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "megatron/checkpoint/slice_math.h"
#include "megatron/params/param_store.h"

namespace megatron {

struct CheckpointSource;

struct WeightInfo {
  std::string name;
  Shape shape;  ///< global
  at::ScalarType type = at::kFloat;
};

/// Not thread-safe: readers cache what they read last.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  /// Returns all weights, ascending by name.
  virtual const std::vector<WeightInfo>& weights() const = 0;
  /// Returns the states of layers (ParameterKind::state), ascending by name.
  virtual const std::vector<WeightInfo>& states() const;
  /// Returns null when there is no weight or state of that name.
  const WeightInfo* find(const std::string& name) const;
  /// Copies a slice of the global tensor to `destination`, which has the slice's shape. Converts
  /// the type.
  virtual void copy_slice(const std::string& name, const TensorSlice& slice,
                          at::Tensor destination) = 0;
  /// Returns the whole global tensor in its stored type.
  at::Tensor read(const std::string& name);
};

/// Fills `flat`, the elements of `piece`, from the global tensor `name`. Local padding becomes
/// zero. The first rank of `holders`, which want the same elements, reads them and broadcasts.
/// Collective over the holders.
void fill_piece(WeightReader& reader, const ParameterPiece& piece, const std::string& name,
                at::Tensor flat, const Axis& holders = {});

/// Returns whether a weight of `reader` has the shape of a parameter. Another one is only left out
/// with CheckpointSource::replaces_heads.
bool has_weight_of(const WeightReader& reader, const Parameter& parameter);

/// Fills every parameter of the store exactly once. Throws a UserError that names tensors which are
/// missing, have another shape, or belong to no rank of the model. A state that is missing keeps
/// its value; with `replaces_heads` weights of heads do. Collective over store.model_axis() and the
/// ranks with the same weights.
void fill_store(WeightReader& reader, const std::string& source, ParamStore& store,
                bool replaces_heads = false);

/// Returns the reader for the kind of `source`.
std::unique_ptr<WeightReader> open_weights(const CheckpointSource& source);

}  // namespace megatron
