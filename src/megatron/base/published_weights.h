// Where a rank's weights lie in its memory. `megatron chaos` asks the ranks to publish it, and
// changes a weight from outside, as faulty memory would.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace megatron {

/// The folder that ranks publish to. Without the variable they publish nothing.
inline constexpr const char* kPublishedWeightsVariable = "MEGATRON_PUBLISHED_WEIGHTS";

/// float32 numbers in the memory of a process.
struct PublishedWeights {
  std::uint64_t address = 0, count = 0;
};

void publish_weights(const std::filesystem::path& folder, const PublishedWeights& weights);
/// Returns what a process has published; nullopt if it has not yet.
std::optional<PublishedWeights> published_weights(const std::filesystem::path& folder,
                                                  pid_t process);

}  // namespace megatron
