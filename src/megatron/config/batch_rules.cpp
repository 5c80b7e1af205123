// Rules on batches and on the length of a run.
#include <algorithm>
#include <limits>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/blend_schedule.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;

std::int64_t global_batch_size(S s) {
  return s.training->global_batch_size == 0 ? s.training->micro_batch_size
                                            : s.training->global_batch_size;
}
bool has_steps(S s) { return !s.training->step_batch_size_schedule.empty(); }
bool has_ramp(S s) { return s.training->rampup_batch_size.size() == 3; }
std::int64_t ramp_distance(S s) { return global_batch_size(s) - s.training->rampup_batch_size[0]; }
bool ramp_is_too_fine(S s) {
  return has_ramp(s) && ramp_distance(s) / s.training->rampup_batch_size[1] > kMaxRampIncrements;
}
bool ramp_is_whole(S s) {
  return !has_ramp(s) ||
         (ramp_distance(s) >= 0 && ramp_distance(s) % s.training->rampup_batch_size[1] == 0);
}

std::optional<UserError::Parts> step_schedule_mistake(S s) {
  if (!has_steps(s) || s.training->seq_length < 1) return std::nullopt;
  try {
    parse_batch_size_steps(s.training->step_batch_size_schedule, s.training->seq_length);
    return std::nullopt;
  } catch (const UserError& error) {
    return error.parts();
  }
}

/// Returns the batch schedule, or nullopt if the flags do not form one.
std::optional<NumMicrobatchesCalculator> batches(S s) {
  if (step_schedule_mistake(s) || s.training->seq_length < 1 || s.training->micro_batch_size < 1 ||
      !ramp_is_whole(s) || ramp_is_too_fine(s))
    return std::nullopt;
  return NumMicrobatchesCalculator(*s.training);
}

/// Returns a batch size that cannot be divided into microbatches. With --load it returns nullopt,
/// because the checkpoint determines the first batch size.
std::optional<std::int64_t> indivisible_size(S s) {
  const auto schedule = batches(s);
  if (!schedule || schedule->is_constant() || !s.checkpoint->load.empty()) return std::nullopt;
  return schedule->indivisible_size(0);
}

bool has_transitions(S s) { return !s.training->phase_transition_iterations.empty(); }
std::int64_t last_transition(S s) {
  return *std::ranges::max_element(s.training->phase_transition_iterations);
}
/// Returns the length of a run in iterations; a number without limit while it is unknown.
std::int64_t iterations_of_run(S s) {
  if (s.training->train_iters > 0) return s.training->train_iters;
  const auto schedule = s.training->train_samples > 0 ? batches(s) : std::nullopt;
  return schedule ? schedule->iterations_for(s.training->train_samples)
                  : std::numeric_limits<std::int64_t>::max();
}
bool has_blend_schedule(S s) { return !s.data->blend_schedule.empty(); }
std::int64_t last_blend_step(S s) {
  return parse_blend_schedule(s.data->blend_schedule).back().iteration;
}

std::vector<Rule> required_rules() {
  return {
      {{"micro_batch_size", "batch_size"},
       [](S s) { return s.training->micro_batch_size == 0; },
       [](S) {
         return UserError::Parts{"--micro-batch-size", "is required",
                                 "add --micro-batch-size N, the samples of one forward pass"};
       }},
      {{"seq_length"},
       [](S s) { return s.training->seq_length == 0; },
       [](S) {
         return UserError::Parts{"--seq-length", "is required",
                                 "add --seq-length N, the tokens of one sample"};
       }},
      {{"train_iters", "train_samples", "train_epochs"},
       [](S s) {
         return s.training->train_iters == 0 && s.training->train_samples == 0 &&
                !s.training->train_epochs && !s.training->skip_train;
       },
       [](S) {
         return UserError::Parts{"--train-iters", "is required, and above 0",
                                 "add --train-iters N, --train-samples N or --train-epochs N"};
       }},
  };
}

std::vector<Rule> length_rules() {
  return {
      {{"train_iters", "train_samples"},
       [](S s) { return s.training->train_iters > 0 && s.training->train_samples > 0; },
       [](S s) {
         return UserError::Parts{"--train-iters " + text_of(s.training->train_iters),
                                 "excludes --train-samples " + text_of(s.training->train_samples),
                                 "give one of the two"};
       }},
      {{"train_samples", "micro_batch_size", "global_batch_size", "seq_length", "rampup_batch_size",
        "step_batch_size_schedule"},
       [](S s) {
         return s.training->train_samples > 0 && batches(s) &&
                s.training->train_samples < batches(s)->at(0).global_batch_size;
       },
       [](S s) {
         const std::string first = text_of(batches(s)->at(0).global_batch_size);
         return UserError::Parts{
             "--train-samples",
             text_of(s.training->train_samples) + " is less than one global batch of " + first,
             "train on at least " + first + " samples"};
       }},
  };
}

std::vector<Rule> epoch_rules() {
  return {
      {{"train_epochs", "train_iters", "train_samples"},
       [](S s) {
         return s.training->train_epochs &&
                (s.training->train_iters > 0 || s.training->train_samples > 0);
       },
       [](S s) {
         return UserError::Parts{
             "--train-epochs",
             std::string("excludes ") +
                 (s.training->train_iters > 0
                      ? "--train-iters " + text_of(s.training->train_iters)
                      : "--train-samples " + text_of(s.training->train_samples)),
             "give one of the two"};
       }},
      {{"train_epochs", "phase_transition_iterations"},
       [](S s) { return s.training->train_epochs && has_transitions(s); },
       [](S) {
         return UserError::Parts{
             "--train-epochs",
             "excludes --phase-transition-iterations: each phase has data of its own",
             "give --train-iters N or --train-samples N"};
       }},
  };
}

std::vector<Rule> size_rules() {
  return {
      {{"micro_batch_size", "global_batch_size"},
       [](S s) {
         const TrainingConfig& t = *s.training;
         return t.micro_batch_size > 0 && !has_steps(s) && !t.decrease_batch_size_if_needed &&
                global_batch_size(s) % t.micro_batch_size != 0;
       },
       [](S s) {
         const std::int64_t micro = s.training->micro_batch_size,
                            global = s.training->global_batch_size;
         return UserError::Parts{
             "--global-batch-size",
             text_of(global) + " is no multiple of --micro-batch-size " + text_of(micro),
             "use --global-batch-size " +
                 text_of(std::max<std::int64_t>(1, global / micro) * micro) +
                 ", or add --decrease-batch-size-if-needed"};
       }},
      {{"micro_batch_size", "global_batch_size", "rampup_batch_size"},
       [](S s) {
         const auto schedule =
             s.training->decrease_batch_size_if_needed ? batches(s) : std::nullopt;
         return schedule && schedule->at(0).num_microbatches < 1;
       },
       [](S s) {
         return UserError::Parts{"--micro-batch-size",
                                 text_of(s.training->micro_batch_size) +
                                     " is more than the first batch of " +
                                     text_of(batches(s)->at(0).global_batch_size),
                                 "lower it to the first batch size"};
       }},
      {{"micro_batch_size", "rampup_batch_size", "step_batch_size_schedule"},
       [](S s) { return indivisible_size(s).has_value(); },
       [](S s) {
         return UserError::Parts{has_ramp(s) ? "--rampup-batch-size" : "--step-batch-size-schedule",
                                 "a batch of " + text_of(*indivisible_size(s)) +
                                     " is no multiple of --micro-batch-size " +
                                     text_of(s.training->micro_batch_size),
                                 "choose sizes that are"};
       }},
  };
}

std::vector<Rule> ramp_rules() {
  return {
      {{"rampup_batch_size", "global_batch_size"},
       [](S s) { return ramp_is_too_fine(s); },
       [](S) {
         return UserError::Parts{"--rampup-batch-size", "has more than a million increments",
                                 "choose a larger increment"};
       }},
      {{"rampup_batch_size"},
       [](S s) { return !s.training->rampup_batch_size.empty() && !has_ramp(s); },
       [](S s) {
         return UserError::Parts{
             "--rampup-batch-size: takes three numbers, got " +
                 text_of(static_cast<std::int64_t>(s.training->rampup_batch_size.size())),
             "",
             "give the first batch size, the increment and the samples of the ramp: "
             "--rampup-batch-size 16 8 300000"};
       }},
      {{"rampup_batch_size", "global_batch_size"},
       [](S s) { return has_ramp(s) && !has_steps(s) && !ramp_is_whole(s); },
       [](S s) {
         const std::int64_t start = s.training->rampup_batch_size[0],
                            increment = s.training->rampup_batch_size[1];
         const bool falls = ramp_distance(s) < 0;
         return UserError::Parts{
             "--rampup-batch-size",
             falls ? "starts at " + text_of(start) + ", above --global-batch-size " +
                         text_of(global_batch_size(s))
                   : "increments of " + text_of(increment) + " do not lead from " + text_of(start) +
                         " to --global-batch-size " + text_of(global_batch_size(s)),
             falls ? "start at or below the global batch size"
                   : "choose an increment that divides " + text_of(ramp_distance(s))};
       }},
  };
}

std::vector<Rule> step_rules() {
  return {
      {{"step_batch_size_schedule", "seq_length"},
       [](S s) { return step_schedule_mistake(s).has_value(); },
       [](S s) { return *step_schedule_mistake(s); }},
      {{"step_batch_size_schedule", "global_batch_size"},
       [](S s) { return has_steps(s) && s.training->global_batch_size > 0; },
       [](S) {
         return UserError::Parts{"--step-batch-size-schedule", "excludes --global-batch-size",
                                 "give one of the two"};
       }},
      {{"step_batch_size_schedule", "rampup_batch_size"},
       [](S s) { return has_steps(s) && !s.training->rampup_batch_size.empty(); },
       [](S) {
         return UserError::Parts{"--step-batch-size-schedule", "excludes --rampup-batch-size",
                                 "give one of the two"};
       }},
      {{"step_batch_size_schedule", "decrease_batch_size_if_needed"},
       [](S s) { return has_steps(s) && s.training->decrease_batch_size_if_needed; },
       [](S) {
         return UserError::Parts{"--step-batch-size-schedule",
                                 "excludes --decrease-batch-size-if-needed",
                                 "choose sizes that are multiples of --micro-batch-size"};
       }},
  };
}

std::vector<Rule> phase_transition_rules() {
  return {
      {{"phase_transition_iterations", "rampup_batch_size", "step_batch_size_schedule",
        "decrease_batch_size_if_needed"},
       [](S s) {
         return has_transitions(s) && (!s.training->rampup_batch_size.empty() || has_steps(s) ||
                                       s.training->decrease_batch_size_if_needed);
       },
       [](S s) {
         const std::string flag = has_steps(s) ? "--step-batch-size-schedule"
                                  : s.training->decrease_batch_size_if_needed
                                      ? "--decrease-batch-size-if-needed"
                                      : "--rampup-batch-size";
         return UserError::Parts{
             "--phase-transition-iterations",
             "excludes " + flag + ": all phases of the data have one batch size",
             "leave one of the two out"};
       }},
      {{"phase_transition_iterations", "train_iters", "train_samples", "global_batch_size",
        "micro_batch_size"},
       [](S s) { return has_transitions(s) && last_transition(s) >= iterations_of_run(s); },
       [](S s) {
         return UserError::Parts{"--phase-transition-iterations",
                                 text_of(last_transition(s)) +
                                     " is not before the end of training at iteration " +
                                     text_of(iterations_of_run(s)),
                                 "leave it out, or train for longer"};
       }},
  };
}

}  // namespace

const std::vector<Rule>& blend_schedule_rules() {
  static const std::vector<Rule> rules = {
      {{"blend_schedule"},
       [](S s) { return blend_schedule_mistake(*s.data).has_value(); },
       [](S s) { return *blend_schedule_mistake(*s.data); }},
      {{"blend_schedule", "data_path", "train_data_path", "data_args_path",
        "per_split_data_args_path"},
       [](S s) { return has_blend_schedule(s) && !has_paths(*s.data); },
       [](S) {
         return UserError::Parts{"--blend-schedule", "has no sources to mix",
                                 "name all of them with --data-path or --train-data-path"};
       }},
      {{"blend_schedule", "phase_transition_iterations", "decrease_batch_size_if_needed"},
       [](S s) {
         return has_blend_schedule(s) &&
                (has_transitions(s) || s.training->decrease_batch_size_if_needed);
       },
       [](S s) {
         return UserError::Parts{
             "--blend-schedule",
             has_transitions(s)
                 ? "excludes --phase-transition-iterations: a phase has a data set of its own"
                 : "excludes --decrease-batch-size-if-needed: the samples before a step must not "
                   "depend on the number of ranks",
             "leave one of the two out"};
       }},
      {{"blend_schedule", "train_iters", "train_samples", "global_batch_size", "micro_batch_size"},
       [](S s) {
         return has_blend_schedule(s) && !blend_schedule_mistake(*s.data) &&
                last_blend_step(s) >= iterations_of_run(s);
       },
       [](S s) {
         return UserError::Parts{"--blend-schedule",
                                 "iteration " + text_of(last_blend_step(s)) +
                                     " is not before the end of training at iteration " +
                                     text_of(iterations_of_run(s)),
                                 "leave the step out, or train for longer"};
       }},
  };
  return rules;
}

const std::vector<Rule>& batch_rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = required_rules();
    for (const auto& more : {size_rules(), length_rules(), epoch_rules(), ramp_rules(),
                             step_rules(), phase_transition_rules(), blend_schedule_rules()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return rules;
}

}  // namespace megatron
