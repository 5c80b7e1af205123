#include "megatron/config/report_folders.h"

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"

namespace megatron {

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
