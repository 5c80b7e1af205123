#include "megatron/config/checkpoint_folders.h"

#include <filesystem>

#include "megatron/config/checkpoint_config.h"

namespace megatron {

std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root) {
  if (config.non_persistent_ckpt_type.empty()) return {};
  if (config.non_persistent_ckpt_type == "local") return config.non_persistent_local_ckpt_dir;
  if (!config.non_persistent_global_ckpt_dir.empty()) return config.non_persistent_global_ckpt_dir;
  return root.empty() ? std::string() : (std::filesystem::path(root) / "non_persistent").string();
}

}  // namespace megatron
