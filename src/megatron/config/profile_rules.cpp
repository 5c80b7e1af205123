// Rules on the profile: its window and its folder.
#include "megatron/config/profile_rules.h"

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;

bool uses_window(S s) {
  return s.logger->profile || (!s.logger->trace.empty() && has_profile_window(*s.logger));
}
bool has_folder(S s) {
  return !s.logger->profile_dir.empty() || !s.logger->tensorboard_dir.empty() ||
         !s.checkpoint->save.empty();
}

const std::vector<Rule>& profile_rules() {
  static const std::vector<Rule> rules = {
      {{"profile", "trace", "profile_step_start", "profile_step_end"},
       [](S s) {
         return uses_window(s) && s.logger->profile_step_end <= s.logger->profile_step_start;
       },
       [](S s) {
         return UserError::Parts{"--profile-step-end",
                                 text_of(s.logger->profile_step_end) +
                                     " is not above --profile-step-start " +
                                     text_of(s.logger->profile_step_start),
                                 "use for example --profile-step-start 10 --profile-step-end 12"};
       }},
      {{"profile", "trace", "profile_step_end", "train_iters"},
       [](S s) {
         return uses_window(s) && s.training->train_iters > 0 &&
                s.logger->profile_step_end > s.training->train_iters;
       },
       [](S s) {
         return UserError::Parts{
             "--profile-step-end",
             text_of(s.logger->profile_step_end) + " is beyond --train-iters " +
                 text_of(s.training->train_iters),
             "add --profile-step-start and --profile-step-end inside the run, or train for longer"};
       }},
      {{"profile", "profile_dir", "tensorboard_dir", "save"},
       [](S s) { return s.logger->profile && !has_folder(s); },
       [](S) {
         return UserError::Parts{"--profile", "has no folder to write to",
                                 "add --profile-dir DIR, --tensorboard-dir DIR or --save DIR"};
       }},
  };
  return rules;
}

}  // namespace

bool has_profile_window(const LoggerConfig& logger) {
  const LoggerConfig defaults;
  return logger.profile || logger.profile_step_start != defaults.profile_step_start ||
         logger.profile_step_end != defaults.profile_step_end;
}

Problems validate_profile(const Settings& settings, const FieldNames& skip) {
  return evaluate(profile_rules(), settings, skip);
}

}  // namespace megatron
