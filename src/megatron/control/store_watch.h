// Follows the values of some keys: the store sends every change, so no poll is needed.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/descriptor.h"

namespace megatron {

class StoreClient;

/// Not thread-safe.
class StoreWatch {
 public:
  /// Takes over the connection of `client`, whose store must be one of this program's.
  StoreWatch(StoreClient& client, std::vector<std::string> keys);

  /// Returns after a change of a key, after `timeout`, or when the descriptor `wake` can be read.
  /// Throws StoreLost.
  void wait(std::chrono::milliseconds timeout, int wake = -1);
  /// Returns the last known value of the key with this index.
  const std::optional<std::string>& value(std::size_t index) const { return values_[index]; }

 private:
  void take_frames();

  Descriptor descriptor_;
  const std::vector<std::string> keys_;
  std::vector<std::optional<std::string>> values_;
  std::string in_;
};

}  // namespace megatron
