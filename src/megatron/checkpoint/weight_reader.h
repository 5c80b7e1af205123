// Weights by our names, whatever they are stored in: our checkpoint or a Hugging Face directory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatron/checkpoint/box_math.h"
#include "megatron/transformer/sharding.h"

namespace megatron {

class ParamStore;

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
  /// Copies a region of the global tensor into `destination` (shape of the region), converting its type.
  virtual void copy_region(const std::string& name, const Region& region, at::Tensor destination) = 0;
  /// The whole global tensor in its stored type.
  at::Tensor read(const std::string& name);
};

/// Fills a rank's piece of a global tensor, box by box; local padding becomes zero.
void fill_local(const Sharding& sharding, const Axis& axis, at::Tensor local,
                const std::function<void(const Region& region, at::Tensor destination)>& copy_region);

/// Fills every parameter of the store exactly once. UserError naming tensors that are missing, left over or of another shape.
void fill_store(WeightReader& reader, const std::string& source, ParamStore& store);

}  // namespace megatron
