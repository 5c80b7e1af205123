#include "megatron/base/published_weights.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "megatron/base/files.h"

namespace megatron {

void publish_weights(const std::filesystem::path& folder, const PublishedWeights& weights) {
  write_file_atomically(folder / std::to_string(::getpid()),
                        std::to_string(weights.address) + " " + std::to_string(weights.count));
}

std::optional<PublishedWeights> published_weights(const std::filesystem::path& folder,
                                                  pid_t process) {
  std::ifstream file(folder / std::to_string(process));
  PublishedWeights weights;
  if (!(file >> weights.address >> weights.count) || weights.count == 0) return std::nullopt;
  return weights;
}

}  // namespace megatron
