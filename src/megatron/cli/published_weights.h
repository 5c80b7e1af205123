// Where a rank's weights lie in its memory. `megatron chaos` asks the ranks of `megatron pretrain`
// to publish it, and changes a weight from outside, as faulty memory would.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "megatron/base/files.h"

namespace megatron {

/// The folder that ranks publish to. Without the variable they publish nothing.
inline constexpr const char* kPublishedWeightsVariable = "MEGATRON_PUBLISHED_WEIGHTS";

/// float32 numbers in the memory of a process.
struct PublishedWeights {
  std::uint64_t address = 0, count = 0;
};

/// Publishes weights of this process.
inline void publish_weights(const std::filesystem::path& folder, const PublishedWeights& weights) {
  write_file_atomically(folder / std::to_string(::getpid()),
                        std::to_string(weights.address) + " " + std::to_string(weights.count));
}

/// Returns what a process has published; nullopt if it has not yet.
inline std::optional<PublishedWeights> published_weights(const std::filesystem::path& folder,
                                                         pid_t process) {
  std::ifstream file(folder / std::to_string(process));
  PublishedWeights weights;
  if (!(file >> weights.address >> weights.count) || weights.count == 0) return std::nullopt;
  return weights;
}

}  // namespace megatron
