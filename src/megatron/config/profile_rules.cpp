// Rules on what a run records: the window and the folder of a profile, and stragglers.
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

const Rules& profile_rules() {
  static const Rules of_windows = {
      rule([](S s) { return s.logger->profile_step_end <= s.logger->profile_step_start; },
           {&Logger::profile_step_end,
            {value(&Logger::profile_step_end), " is not above ",
             with_value(&Logger::profile_step_start)},
            {"use for example ", &Logger::profile_step_start, " 10 ", &Logger::profile_step_end,
             " 12"}}),
      when(&Training::train_iters,
           at_most(&Training::train_iters, &Logger::profile_step_end,
                   {.fix = {"add ", &Logger::profile_step_start, " and ", &Logger::profile_step_end,
                            " inside the run, or train for longer"}})),
  };
  static const Rules rules = {
      when(uses_window, of_windows),
      refuse({&Logger::profile, without(&Logger::profile_dir), without(&Logger::tensorboard_dir),
              without(&Checkpoint::save)},
             "has no folder to write to",
             {"add ", to_add(&Logger::profile_dir), ", ", to_add(&Logger::tensorboard_dir), " or ",
              to_add(&Checkpoint::save)}),
      tunes({&Logger::straggler_minmax_count, &Logger::straggler_ctrlr_port,
             &Logger::disable_straggler_on_startup},
            &Logger::log_straggler),
  };
  return rules;
}

}  // namespace megatron
