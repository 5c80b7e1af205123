#include "megatron/config/run_folders.h"

#include <filesystem>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"

namespace megatron {

std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root) {
  if (config.non_persistent_ckpt_type.empty()) return {};
  if (config.non_persistent_ckpt_type == "local") return config.non_persistent_local_ckpt_dir;
  if (!config.non_persistent_global_ckpt_dir.empty()) return config.non_persistent_global_ckpt_dir;
  return root.empty() ? std::string() : (std::filesystem::path(root) / "non_persistent").string();
}

std::string metrics_folder(const Settings& settings) {
  return settings.logger->tensorboard_dir.empty() ? settings.checkpoint->save
                                                  : settings.logger->tensorboard_dir;
}

std::string hang_report_folder(const Settings& settings) {
  if (!settings.parallel->hang_report_dir.empty()) return settings.parallel->hang_report_dir;
  const std::string folder = metrics_folder(settings);
  return folder.empty() ? "" : folder + "/hang-reports";
}

}  // namespace megatron
