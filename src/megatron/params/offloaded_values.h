// Weights that lie in another memory between their uses (--cpu-offloading-weights): forward and
// backward read a unit of the model at a time, and an update writes it back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/ops/offload_store.h"

namespace megatron {

/// The values of buckets, each a flat tensor, in an OffloadStore. They start as zeros.
class OffloadedValues {
 public:
  /// `store` is null in a plan of memory, which neither reads nor writes.
  explicit OffloadedValues(std::shared_ptr<OffloadStore> store) : store_(std::move(store)) {}

  /// Adds the values of bucket `index`, which are `size` elements.
  void add(std::size_t index, std::int64_t size, at::TensorOptions options);

  /// Starts reading a bucket, into `into` if that is defined: flat, and of the bucket's type.
  void prefetch(std::size_t index, at::Tensor into = {});
  /// Returns whether the values of a bucket are being read, or were, for a read() to come.
  bool is_read_ahead(std::size_t index) const { return places_.at(index).is_read_ahead; }
  /// Returns the values of a bucket, which must not be written. They lie where prefetch() put them,
  /// unless they were in memory still.
  at::Tensor read(std::size_t index);
  /// Returns what read() does, and remembers it until another function is called, for callers that
  /// want the parameters of a bucket one after another.
  at::Tensor peek(std::size_t index);
  /// Returns the values of a bucket, which may be written. The store has none until they are put
  /// back.
  at::Tensor take(std::size_t index);
  /// Puts values back. They stay in memory until another function is called or other values are put
  /// back, so that the parameters of a bucket may be changed one after another.
  void put(std::size_t index, at::Tensor values);

 private:
  struct Place {
    std::int64_t size = 0;
    at::TensorOptions options;
    std::unique_ptr<OffloadedTensor> stored;  ///< null: zeros, or taken
    bool is_read_ahead = false;
  };
  /// Values of a bucket in memory.
  struct Held {
    std::size_t index = 0;
    at::Tensor values;
  };
  /// Forgets what peek() remembers and gives the store what put() holds.
  void flush();

  std::shared_ptr<OffloadStore> store_;
  std::vector<Place> places_;  ///< one per bucket
  std::optional<Held> peeked_, put_;
};

}  // namespace megatron
