// Rules on the profile: its window and its folder.
#include "megatron/config/profile_rules.h"

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using namespace rules;

bool uses_window(S s) {
  return s.logger->profile || (!s.logger->trace.empty() && has_profile_window(*s.logger));
}
}  // namespace

bool has_profile_window(const LoggerConfig& logger) {
  const LoggerConfig defaults;
  return logger.profile || logger.profile_step_start != defaults.profile_step_start ||
         logger.profile_step_end != defaults.profile_step_end;
}

Problems validate_profile(const Settings& settings, const FieldNames& skip) {
  static const Rules rules = {
      rule(
          [](S s) {
            return uses_window(s) && s.logger->profile_step_end <= s.logger->profile_step_start;
          },
          {&Logger::profile_step_end,
           {value(&Logger::profile_step_end), " is not above ",
            with_value(&Logger::profile_step_start)},
           {"use for example ", &Logger::profile_step_start, " 10 ", &Logger::profile_step_end,
            " 12"}}),
      rule(
          [](S s) {
            return uses_window(s) && s.training->train_iters > 0 &&
                   s.logger->profile_step_end > s.training->train_iters;
          },
          {&Logger::profile_step_end,
           {value(&Logger::profile_step_end), " is beyond ", with_value(&Training::train_iters)},
           {"add ", &Logger::profile_step_start, " and ", &Logger::profile_step_end,
            " inside the run, or train for longer"}}),
      refuse({&Logger::profile, without(&Logger::profile_dir), without(&Logger::tensorboard_dir),
              without(&Checkpoint::save)},
             "has no folder to write to",
             {"add ", &Logger::profile_dir, " DIR, ", &Logger::tensorboard_dir, " DIR or ",
              &Checkpoint::save, " DIR"}),
  };
  return evaluate(rules, settings, skip);
}

}  // namespace megatron
