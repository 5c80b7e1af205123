// Rules on batches and on the length of a run.
#include <algorithm>
#include <limits>

#include "megatron/base/words.h"
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

/// Refuses a batch size that cannot be divided into microbatches, unless --load is given: the
/// checkpoint determines the first batch size.
std::optional<Message> wrong_size(S s) {
  const auto schedule = batches(s);
  if (!schedule || schedule->is_constant() || !s.checkpoint->load.empty()) return std::nullopt;
  const auto size = schedule->indivisible_size(0);
  if (!size) return std::nullopt;
  const Setting ramp = &Training::rampup_batch_size, steps = &Training::step_batch_size_schedule;
  return Message{
      has_ramp(s) ? ramp : steps,
      {"a batch of ", *size, " is no multiple of ", with_value(&Training::micro_batch_size)},
      "choose sizes that are",
      {ramp, steps}};
}

bool has_too_small_first_batch(S s) {
  const auto schedule = s.training->decrease_batch_size_if_needed ? batches(s) : std::nullopt;
  return schedule && schedule->at(0).num_microbatches < 1;
}

/// Returns the length of a run in iterations; a number without limit while it is unknown.
std::int64_t iterations_of_run(S s) {
  if (s.training->train_iters > 0) return s.training->train_iters;
  const auto schedule = s.training->train_samples > 0 ? batches(s) : std::nullopt;
  return schedule ? schedule->iterations_for(s.training->train_samples)
                  : std::numeric_limits<std::int64_t>::max();
}
/// Returns the phases that would begin when training has ended.
std::string late_transitions(S s) {
  std::vector<std::int64_t> late = s.training->phase_transition_iterations;
  std::erase_if(late, [&](std::int64_t iteration) { return iteration < iterations_of_run(s); });
  return joined_text(late);
}
std::int64_t last_blend_step(S s) {
  return parse_blend_schedule(s.data->blend_schedule).back().iteration;
}

/// Returns the settings that decide the length of a run in iterations.
std::vector<Setting> length_settings() {
  return {&Training::train_iters, &Training::train_samples, &Training::global_batch_size,
          &Training::micro_batch_size};
}

std::optional<Message> wrong_evaluation(S s) {
  const TrainingConfig& t = *s.training;
  const std::int64_t micro = t.eval_micro_batch_size.value_or(t.micro_batch_size),
                     global = t.eval_global_batch_size.value_or(global_batch_size(s));
  const bool given = t.eval_global_batch_size || t.eval_micro_batch_size;
  if (!given || has_steps(s) || micro < 1 || global % micro == 0) return std::nullopt;
  return Message{&Training::eval_global_batch_size,
                 {global, " is no multiple of the micro batch size of evaluation, ", micro},
                 {"use ", &Training::eval_global_batch_size, " ",
                  std::max<std::int64_t>(1, global / micro) * micro, ", or another ",
                  &Training::eval_micro_batch_size},
                 {&Training::global_batch_size, &Training::micro_batch_size}};
}

Rules size_rules() {
  const Condition varies =
      any({&Training::step_batch_size_schedule, &Training::decrease_batch_size_if_needed});
  return {
      required(&Training::micro_batch_size, "the samples of one forward pass"),
      required(&Training::seq_length, "the tokens of one sample"),
      when(without(varies), divides(&Training::micro_batch_size, &Training::global_batch_size)),
      rule(has_too_small_first_batch,
           {&Training::micro_batch_size,
            {value(&Training::micro_batch_size), " is more than the first batch of ", first_batch},
            "lower it to the first batch size",
            {&Training::global_batch_size, &Training::rampup_batch_size}}),
      Rules(wrong_size),
      Rules(wrong_evaluation),
      needs(&Training::validation_set_names, &Training::multiple_validation_sets),
      tunes({&Training::start_eval_at_iter}, &Training::eval_interval),
  };
}

Rules length_rules() {
  const auto is_below_one_batch = [](S s) {
    return s.training->train_samples > 0 && s.training->train_samples < first_batch(s);
  };
  return {
      refuse({without(&Training::train_iters), without(&Training::train_samples),
              without(&Training::train_epochs), without(&Training::skip_train)},
             "is required, and above 0",
             {"add ", to_add(&Training::train_iters), ", ", to_add(&Training::train_samples),
              " or ", to_add(&Training::train_epochs)}),
      excludes(valued(&Training::train_iters), valued(&Training::train_samples)),
      excludes(&Training::train_epochs,
               {valued(&Training::train_iters), valued(&Training::train_samples)}),
      excludes(&Training::train_epochs, &Training::phase_transition_iterations,
               {.why = ": each phase has data of its own",
                .fix = {"give ", to_add(&Training::train_iters), " or ",
                        to_add(&Training::train_samples)}}),
      rule(is_below_one_batch,
           {&Training::train_samples,
            {value(&Training::train_samples), " is less than one global batch of ", first_batch},
            {"train on at least ", first_batch, " samples"},
            {&Training::micro_batch_size, &Training::global_batch_size, &Training::seq_length,
             &Training::rampup_batch_size, &Training::step_batch_size_schedule}}),
  };
}

std::int64_t ramp_numbers(S s) { return std::ssize(s.training->rampup_batch_size); }
std::int64_t ramp_start(S s) { return s.training->rampup_batch_size[0]; }
std::int64_t ramp_increment(S s) { return s.training->rampup_batch_size[1]; }

Rules ramp_rules() {
  const Condition ramp = {[](S s) { return has_ramp(s) && !has_steps(s); },
                          &Training::rampup_batch_size};
  const auto falls = [](S s) { return ramp_distance(s) < 0; };
  const auto is_uneven = [](S s) { return ramp_distance(s) >= 0 && !ramp_is_whole(s); };
  return {
      rule(ramp_is_too_fine, {&Training::rampup_batch_size,
                              "has more than a million increments",
                              "choose a larger increment",
                              {&Training::global_batch_size}}),
      refuse({&Training::rampup_batch_size, without(has_ramp)},
             {"takes three numbers, got ", ramp_numbers},
             {"give the first batch size, the increment and the samples of the ramp: ",
              &Training::rampup_batch_size, " 16 8 300000"}),
      refuse({ramp, falls},
             {"starts at ", ramp_start, ", above ", &Training::global_batch_size, " ",
              global_batch_size},
             "start at or below the global batch size"),
      refuse({ramp, is_uneven},
             {"increments of ", ramp_increment, " do not lead from ", ramp_start, " to ",
              &Training::global_batch_size, " ", global_batch_size},
             {"choose an increment that divides ", ramp_distance}),
  };
}

Rules step_rules() {
  return {
      reported(step_schedule_mistake, {&Training::step_batch_size_schedule, &Training::seq_length}),
      excludes(&Training::step_batch_size_schedule,
               {&Training::global_batch_size, &Training::rampup_batch_size}),
      excludes(&Training::step_batch_size_schedule, &Training::decrease_batch_size_if_needed,
               {.fix = {"choose sizes that are multiples of ", &Training::micro_batch_size}}),
  };
}

Rules phase_transition_rules() {
  const auto is_late = [](S s) { return !late_transitions(s).empty(); };
  return {
      excludes(&Training::phase_transition_iterations,
               {&Training::step_batch_size_schedule, &Training::decrease_batch_size_if_needed,
                &Training::rampup_batch_size},
               {.why = ": all phases of the data have one batch size"}),
      note({&Training::phase_transition_iterations, {is_late, {}, length_settings()}},
           {"has no effect at ", late_transitions, ": training ends at iteration ",
            iterations_of_run}),
  };
}

bool has_late_step(S s) {
  return !blend_schedule_mistake(*s.data) && last_blend_step(s) >= iterations_of_run(s);
}

}  // namespace

const Rules& blend_schedule_rules() {
  static const Condition has_sources = {[](S s) { return has_paths(*s.data); },
                                        {&Data::data_path, " or ", &Data::train_data_path},
                                        {&Data::data_args_path, &Data::per_split_data_args_path}};
  static const Rules rules = {
      reported([](S s) { return blend_schedule_mistake(*s.data); }, {&Data::blend_schedule}),
      needs(&Data::blend_schedule, has_sources, {.why = ", the sources to mix"}),
      excludes(&Data::blend_schedule, &Training::phase_transition_iterations,
               {.why = ": a phase has a data set of its own"}),
      excludes(&Data::blend_schedule, &Training::decrease_batch_size_if_needed,
               {.why = ": the samples before a step must not depend on the number of ranks"}),
      refuse({&Data::blend_schedule, {has_late_step, {}, length_settings()}},
             {"iteration ", last_blend_step, " is not before the end of training at iteration ",
              iterations_of_run},
             "leave the step out, or train for longer"),
  };
  return rules;
}

const Rules& batch_rules() {
  static const Rules rules = {size_rules(), length_rules(),           ramp_rules(),
                              step_rules(), phase_transition_rules(), blend_schedule_rules()};
  return rules;
}

}  // namespace megatron
