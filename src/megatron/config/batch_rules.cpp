// Rules on batches and on the length of a run.
#include <algorithm>
#include <limits>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/blend_schedule.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
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

/// Returns the first global batch size; 0 if the flags do not form a schedule.
std::int64_t first_batch(S s) {
  const auto schedule = batches(s);
  return schedule ? schedule->at(0).global_batch_size : 0;
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

Rules required_rules() {
  return {
      required(&Training::micro_batch_size, "the samples of one forward pass"),
      required(&Training::seq_length, "the tokens of one sample"),
      rule([](S s) { return !has_length(s) && !s.training->skip_train; },
           {&Training::train_iters,
            "is required, and above 0",
            {"add ", &Training::train_iters, " N, ", &Training::train_samples, " N or ",
             &Training::train_epochs, " N"}}),
  };
}

Rules size_rules() {
  return {
      rule(
          [](S s) {
            const TrainingConfig& t = *s.training;
            return t.micro_batch_size > 0 && !has_steps(s) && !t.decrease_batch_size_if_needed &&
                   global_batch_size(s) % t.micro_batch_size != 0;
          },
          [](S s) {
            const std::int64_t micro = s.training->micro_batch_size, global = global_batch_size(s);
            return Message{&Training::global_batch_size,
                           {value(&Training::global_batch_size), " is no multiple of ",
                            with_value(&Training::micro_batch_size)},
                           {"use ", &Training::global_batch_size, " ",
                            std::max<std::int64_t>(1, global / micro) * micro, ", or add ",
                            &Training::decrease_batch_size_if_needed}};
          }),
      rule(
          [](S s) {
            const auto schedule =
                s.training->decrease_batch_size_if_needed ? batches(s) : std::nullopt;
            return schedule && schedule->at(0).num_microbatches < 1;
          },
          {&Training::micro_batch_size,
           {value(&Training::micro_batch_size), " is more than the first batch of ", first_batch},
           "lower it to the first batch size",
           {&Training::global_batch_size, &Training::rampup_batch_size}}),
      rule([](S s) { return indivisible_size(s).has_value(); },
           [](S s) {
             return Message{has_ramp(s) ? &Training::rampup_batch_size
                                        : Words(&Training::step_batch_size_schedule),
                            {"a batch of ", *indivisible_size(s), " is no multiple of ",
                             with_value(&Training::micro_batch_size)},
                            "choose sizes that are",
                            {&Training::rampup_batch_size, &Training::step_batch_size_schedule}};
           }),
  };
}

Rules length_rules() {
  return {
      refuse({valued(&Training::train_iters), &Training::train_samples},
             {"excludes ", with_value(&Training::train_samples)}, "give one of the two"),
      rule(
          [](S s) {
            return s.training->train_samples > 0 && s.training->train_samples < first_batch(s);
          },
          {&Training::train_samples,
           {value(&Training::train_samples), " is less than one global batch of ", first_batch},
           {"train on at least ", first_batch, " samples"},
           {&Training::micro_batch_size, &Training::global_batch_size, &Training::seq_length,
            &Training::rampup_batch_size, &Training::step_batch_size_schedule}}),
      refuse({&Training::train_epochs, &Training::train_iters},
             {"excludes ", with_value(&Training::train_iters)}, "give one of the two"),
      refuse({&Training::train_epochs, &Training::train_samples},
             {"excludes ", with_value(&Training::train_samples)}, "give one of the two"),
      excludes(
          &Training::train_epochs, &Training::phase_transition_iterations,
          {.why = ": each phase has data of its own",
           .fix = {"give ", &Training::train_iters, " N or ", &Training::train_samples, " N"}}),
  };
}

Rules ramp_rules() {
  return {
      rule(ramp_is_too_fine, {&Training::rampup_batch_size,
                              "has more than a million increments",
                              "choose a larger increment",
                              {&Training::global_batch_size}}),
      rule([](S s) { return !s.training->rampup_batch_size.empty() && !has_ramp(s); },
           [](S s) {
             return Message{
                 {&Training::rampup_batch_size, ": takes three numbers, got ",
                  std::ssize(s.training->rampup_batch_size)},
                 "",
                 {"give the first batch size, the increment and the samples of the ramp: ",
                  &Training::rampup_batch_size, " 16 8 300000"}};
           }),
      rule([](S s) { return has_ramp(s) && !has_steps(s) && ramp_distance(s) < 0; },
           [](S s) {
             return Message{&Training::rampup_batch_size,
                            {"starts at ", s.training->rampup_batch_size[0], ", above ",
                             &Training::global_batch_size, " ", global_batch_size(s)},
                            "start at or below the global batch size"};
           }),
      rule(
          [](S s) {
            return has_ramp(s) && !has_steps(s) && ramp_distance(s) >= 0 && !ramp_is_whole(s);
          },
          [](S s) {
            return Message{&Training::rampup_batch_size,
                           {"increments of ", s.training->rampup_batch_size[1],
                            " do not lead from ", s.training->rampup_batch_size[0], " to ",
                            &Training::global_batch_size, " ", global_batch_size(s)},
                           {"choose an increment that divides ", ramp_distance(s)}};
          }),
  };
}

Rules step_rules() {
  return {
      reported(step_schedule_mistake, {&Training::step_batch_size_schedule, &Training::seq_length}),
      excludes(&Training::step_batch_size_schedule, &Training::global_batch_size),
      excludes(&Training::step_batch_size_schedule, &Training::rampup_batch_size),
      excludes(&Training::step_batch_size_schedule, &Training::decrease_batch_size_if_needed,
               {.fix = {"choose sizes that are multiples of ", &Training::micro_batch_size}}),
  };
}

Rules phase_transition_rules() {
  static const Wording one_size = {.why = ": all phases of the data have one batch size",
                                   .fix = "leave one of the two out"};
  return {
      excludes(&Training::phase_transition_iterations, &Training::step_batch_size_schedule,
               one_size),
      excludes(&Training::phase_transition_iterations, &Training::decrease_batch_size_if_needed,
               one_size),
      excludes(&Training::phase_transition_iterations, &Training::rampup_batch_size, one_size),
      rule(
          [](S s) { return has_transitions(s) && last_transition(s) >= iterations_of_run(s); },
          {&Training::phase_transition_iterations,
           {last_transition, " is not before the end of training at iteration ", iterations_of_run},
           "leave it out, or train for longer",
           {&Training::train_iters, &Training::train_samples, &Training::global_batch_size,
            &Training::micro_batch_size}}),
  };
}

}  // namespace

const Rules& blend_schedule_rules() {
  static const Rules rules = {
      reported([](S s) { return blend_schedule_mistake(*s.data); }, {&Data::blend_schedule}),
      rule([](S s) { return has_blend_schedule(s) && !has_paths(*s.data); },
           {&Data::blend_schedule,
            "has no sources to mix",
            {"name all of them with ", &Data::data_path, " or ", &Data::train_data_path},
            {&Data::data_args_path, &Data::per_split_data_args_path}}),
      excludes(&Data::blend_schedule, &Training::phase_transition_iterations,
               {.why = ": a phase has a data set of its own", .fix = "leave one of the two out"}),
      excludes(&Data::blend_schedule, &Training::decrease_batch_size_if_needed,
               {.why = ": the samples before a step must not depend on the number of ranks",
                .fix = "leave one of the two out"}),
      rule(
          [](S s) {
            return has_blend_schedule(s) && !blend_schedule_mistake(*s.data) &&
                   last_blend_step(s) >= iterations_of_run(s);
          },
          {&Data::blend_schedule,
           {"iteration ", last_blend_step, " is not before the end of training at iteration ",
            iterations_of_run},
           "leave the step out, or train for longer",
           {&Training::train_iters, &Training::train_samples, &Training::global_batch_size,
            &Training::micro_batch_size}}),
  };
  return rules;
}

const Rules& batch_rules() {
  static const Rules rules = {required_rules(),      size_rules(), length_rules(),
                              ramp_rules(),          step_rules(), phase_transition_rules(),
                              blend_schedule_rules()};
  return rules;
}

}  // namespace megatron
