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

using namespace rules;

std::int64_t global_batch_size(S s) {
  return s.training->global_batch_size == 0 ? s.training->micro_batch_size
                                            : s.training->global_batch_size;
}
bool has_steps(S s) { return !s.training->step_batch_size_schedule.empty(); }
bool has_ramp(S s) { return s.training->rampup_batch_size.size() == 3; }
bool has_length(S s) {
  return s.training->train_iters > 0 || s.training->train_samples > 0 || s.training->train_epochs;
}
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

const Rules& required_rules() {
  static const Rules rules = {
      required(~micro-batch-size, "the samples of one forward pass"),
      required(~seq-length, "the tokens of one sample"),
      rule([](S s) { return !has_length(s) && !s.training->skip_train; },
           {W"--train-iters", "is required, and above 0",
            W"add --train-iters N, --train-samples N or --train-epochs N"}),
  };
  return rules;
}

const Rules& size_rules() {
  static const Rules rules = {
      rule([](S s) {
             const TrainingConfig& t = *s.training;
             return t.micro_batch_size > 0 && !has_steps(s) && !t.decrease_batch_size_if_needed &&
                    global_batch_size(s) % t.micro_batch_size != 0;
           },
           [](S s) {
             const std::int64_t micro = s.training->micro_batch_size, global = global_batch_size(s);
             return Message{W"--global-batch-size",
                            {value(~global-batch-size), " is no multiple of ", with_value(~micro-batch-size)},
                            {P"use --global-batch-size ", std::max<std::int64_t>(1, global / micro) * micro,
                             P", or add --decrease-batch-size-if-needed"}};
           }),
      rule([](S s) {
             const auto schedule = s.training->decrease_batch_size_if_needed ? batches(s) : std::nullopt;
             return schedule && schedule->at(0).num_microbatches < 1;
           },
           [](S s) {
             return Message{W"--micro-batch-size",
                            {value(~micro-batch-size), " is more than the first batch of ",
                             batches(s)->at(0).global_batch_size},
                            "lower it to the first batch size",
                            {~global-batch-size, ~rampup-batch-size}};
           }),
      rule([](S s) { return indivisible_size(s).has_value(); },
           [](S s) {
             return Message{has_ramp(s) ? ~rampup-batch-size : Words(~step-batch-size-schedule),
                            {"a batch of ", *indivisible_size(s), " is no multiple of ", with_value(~micro-batch-size)},
                            "choose sizes that are",
                            {~rampup-batch-size, ~step-batch-size-schedule}};
           }),
  };
  return rules;
}

const Rules& length_rules() {
  static const Rules rules = {
      rule([](S s) { return s.training->train_iters > 0 && s.training->train_samples > 0; },
           {with_value(~train-iters), {"excludes ", with_value(~train-samples)}, "give one of the two"}),
      rule([](S s) {
             return s.training->train_samples > 0 && batches(s) &&
                    s.training->train_samples < batches(s)->at(0).global_batch_size;
           },
           [](S s) {
             const std::int64_t first = batches(s)->at(0).global_batch_size;
             return Message{W"--train-samples", {value(~train-samples), " is less than one global batch of ", first},
                            {"train on at least ", first, " samples"},
                            {~micro-batch-size, ~global-batch-size, ~seq-length, ~rampup-batch-size,
                             ~step-batch-size-schedule}};
           }),
      rule([](S s) {
             return s.training->train_epochs && (s.training->train_iters > 0 || s.training->train_samples > 0);
           },
           [](S s) {
             return Message{W"--train-epochs",
                            {"excludes ", with_value(s.training->train_iters > 0 ? Setting(~train-iters)
                                                                                 : Setting(~train-samples))},
                            "give one of the two"};
           }),
      excludes(~train-epochs, ~phase-transition-iterations,
               {.why = ": each phase has data of its own", .fix = W"give --train-iters N or --train-samples N"}),
  };
  return rules;
}

const Rules& ramp_rules() {
  static const Rules rules = {
      rule(ramp_is_too_fine, {W"--rampup-batch-size", "has more than a million increments",
                              "choose a larger increment", {~global-batch-size}}),
      rule([](S s) { return !s.training->rampup_batch_size.empty() && !has_ramp(s); },
           [](S s) {
             return Message{{P"--rampup-batch-size: takes three numbers, got ", std::ssize(s.training->rampup_batch_size)},
                            "",
                            W"give the first batch size, the increment and the samples of the ramp: "
                             "--rampup-batch-size 16 8 300000"};
           }),
      rule([](S s) { return has_ramp(s) && !has_steps(s) && ramp_distance(s) < 0; },
           [](S s) {
             return Message{W"--rampup-batch-size",
                            {"starts at ", s.training->rampup_batch_size[0], P", above --global-batch-size ",
                             global_batch_size(s)},
                            "start at or below the global batch size"};
           }),
      rule([](S s) { return has_ramp(s) && !has_steps(s) && ramp_distance(s) >= 0 && !ramp_is_whole(s); },
           [](S s) {
             return Message{W"--rampup-batch-size",
                            {"increments of ", s.training->rampup_batch_size[1], " do not lead from ",
                             s.training->rampup_batch_size[0], P" to --global-batch-size ", global_batch_size(s)},
                            {"choose an increment that divides ", ramp_distance(s)}};
           }),
  };
  return rules;
}

const Rules& step_rules() {
  static const Rules rules = {
      reported(step_schedule_mistake, {~step-batch-size-schedule, ~seq-length}),
      excludes(~step-batch-size-schedule, ~global-batch-size),
      excludes(~step-batch-size-schedule, ~rampup-batch-size),
      excludes(~step-batch-size-schedule, ~decrease-batch-size-if-needed,
               {.fix = W"choose sizes that are multiples of --micro-batch-size"}),
  };
  return rules;
}

Words flag_of_changing_batches(S s) {
  if (has_steps(s)) return ~step-batch-size-schedule;
  if (s.training->decrease_batch_size_if_needed) return ~decrease-batch-size-if-needed;
  return s.training->rampup_batch_size.empty() ? Words() : Words(~rampup-batch-size);
}

const Rules& phase_transition_rules() {
  static const Rules rules = {
      rule([](S s) { return !flag_of_changing_batches(s).empty(); },
           [](S s) {
             return Message{W"--phase-transition-iterations",
                            "excludes " + flag_of_changing_batches(s) + ": all phases of the data have one batch size",
                            "leave one of the two out"};
           }),
      rule([](S s) { return last_transition(s) >= iterations_of_run(s); },
           [](S s) {
             return Message{W"--phase-transition-iterations",
                            {last_transition(s), " is not before the end of training at iteration ", iterations_of_run(s)},
                            "leave it out, or train for longer",
                            {~train-iters, ~train-samples, ~global-batch-size, ~micro-batch-size}};
           }),
  };
  return rules;
}

}  // namespace

const Rules& blend_schedule_rules() {
  static const Rules rules = {
      reported([](S s) { return blend_schedule_mistake(*s.data); }, {~blend-schedule}),
      rule([](S s) { return has_blend_schedule(s) && !has_paths(*s.data); },
           {W"--blend-schedule", "has no sources to mix", W"name all of them with --data-path or --train-data-path",
            {~data-args-path, ~per-split-data-args-path}}),
      rule([](S s) { return has_blend_schedule(s) && has_transitions(s); },
           {W"--blend-schedule", W"excludes --phase-transition-iterations: a phase has a data set of its own",
            "leave one of the two out"}),
      rule([](S s) {
             return has_blend_schedule(s) && !has_transitions(s) && s.training->decrease_batch_size_if_needed;
           },
           {W"--blend-schedule",
            W"excludes --decrease-batch-size-if-needed: the samples before a step must not depend on the number of ranks",
            "leave one of the two out"}),
      rule([](S s) {
             return has_blend_schedule(s) && !blend_schedule_mistake(*s.data) &&
                    last_blend_step(s) >= iterations_of_run(s);
           },
           [](S s) {
             return Message{W"--blend-schedule",
                            {"iteration ", last_blend_step(s), " is not before the end of training at iteration ",
                             iterations_of_run(s)},
                            "leave the step out, or train for longer",
                            {~train-iters, ~train-samples, ~global-batch-size, ~micro-batch-size}};
           }),
  };
  return rules;
}

const Rules& batch_rules() {
  static const Rules rules = {required_rules(), size_rules(), length_rules(), ramp_rules(),
                              step_rules(), when(has_transitions, phase_transition_rules()),
                              blend_schedule_rules()};
  return rules;
}

}  // namespace megatron
