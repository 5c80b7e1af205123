// Rules between the pipeline flags, and between them and the layers and the batches.
#include "megatron/config/pipeline_rules.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "megatron/config/balance.h"
#include "megatron/config/field_values.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/rule.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/transformer_config.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/simulate.h"

namespace megatron {
namespace {

using namespace rules;

std::int64_t pp(S s) { return s.parallel->pipeline_model_parallel_size; }
bool has_layout(S s) { return !s.parallel->pipeline_model_parallel_layout.empty(); }
bool is_measured(S s) { return s.parallel->pipeline_split == "measured"; }

/// Returns the given ones of `settings` as "--a, --b".
Words given(S s, std::initializer_list<Condition> settings) {
  Words all;
  for (const Condition& setting : settings)
    if (setting.holds(s)) all = all + (all.empty() ? "" : ", ") + setting.words();
  return all;
}

Words listed(std::initializer_list<Words> parts) {
  Words all;
  for (const Words& part : parts)
    if (!part.empty()) all = all + (all.empty() ? "" : ", ") + part;
  return all;
}

Words end_flags(S s) {
  return given(s, {&Parallel::decoder_first_pipeline_num_layers,
                   &Parallel::decoder_last_pipeline_num_layers});
}

Words account_flags(S s) {
  return given(s, {&Parallel::account_for_embedding_in_pipeline_split,
                   &Parallel::account_for_loss_in_pipeline_split});
}

Words virtual_flags(S s) {
  const bool is_given = s.parallel->num_virtual_stages_per_pipeline_rank.value_or(1) > 1;
  return listed({is_given ? Words(&Parallel::num_virtual_stages_per_pipeline_rank) : Words(),
                 given(s, {&Parallel::num_layers_per_virtual_pipeline_stage})});
}

Words measured_flag(S s) { return given(s, {is(&Parallel::pipeline_split, "measured")}); }

/// Returns the given flags that only a pipeline uses.
Words pipeline_flags(S s) {
  return listed({given(s, {&Parallel::pipeline_schedule}), virtual_flags(s), end_flags(s),
                 given(s, {&Parallel::pipeline_model_parallel_layout}), measured_flag(s),
                 given(s, {&Parallel::pipeline_activation_limit})});
}

Words excluded_by_layout(S s) {
  return listed({virtual_flags(s), end_flags(s), account_flags(s), measured_flag(s)});
}
Words excluded_by_measurement(S s) { return listed({end_flags(s), account_flags(s)}); }

/// Returns "leave it out", or "leave them out" for several flags.
Words leave_out(const Words& flags, S s) {
  return flags.text(s).find(',') == std::string::npos ? "leave it out" : "leave them out";
}

/// Returns the error of the pipeline layout, if the number of layers is known. It does not depend
/// on measured costs.
std::optional<UserError::Parts> layout_problem(S s) {
  if (s.model->num_layers < 1 || s.model->num_layers > kMaxLayers ||
      !evaluate(pipeline_rules(), s, {}).empty())
    return std::nullopt;
  try {
    const LayerCosts any;
    pipeline_layout(*s.parallel, s.model->num_layers, &any);
    return std::nullopt;
  } catch (const UserError& error) {
    return error.parts();
  }
}

void check_group(const ScheduleRequest& request, Problems& problems) {
  const std::int64_t group = request.microbatch_group, least = request.num_ranks,
                     most = std::max(least, request.num_microbatches);
  if (group == 0 || (group >= least && group <= most)) return;
  problems.add(
      {Setting(&Parallel::microbatch_group_size_per_virtual_pipeline_stage).flag(),
       text_of(group) + (group < least
                             ? " is less than --pipeline-model-parallel-size " + text_of(least)
                             : " is more than the " + text_of(request.num_microbatches) +
                                   " microbatches of the first batch"),
       least == most ? "use " + text_of(least) : "use " + text_of(least) + " to " + text_of(most)});
}

/// Returns the activations of a microbatch in each stage, in units of those of an average rank's
/// layers. They are kept until the weight gradients are computed. Before a measurement all stages
/// count alike.
CostModel activations(S s, const Schedule& schedule) {
  const double even = 1 / static_cast<double>(schedule.num_chunks);
  CostModel costs = uniform_costs(schedule, {.activation = even, .weight_gradient = even});
  if (s.model->num_layers < 1 || is_measured(s)) return costs;
  const double share =
      static_cast<double>(s.model->num_layers) / static_cast<double>(schedule.num_ranks);
  const PipelineLayout layout = pipeline_layout(*s.parallel, s.model->num_layers);
  for (std::size_t stage = 0; stage < layout.stages.size(); ++stage)
    costs.stages[stage].activation = costs.stages[stage].weight_gradient =
        static_cast<double>(layout.stages[stage].num_layers) / share;
  return costs;
}

void check_limit(S s, const ScheduleRequest& request, Problems& problems) {
  const Schedule schedule = with_messages(make_schedule(request));
  const std::vector<double> peaks = simulate(schedule, activations(s, schedule)).peak_activation;
  const auto worst = std::max_element(peaks.begin(), peaks.end());
  constexpr double kRounding = 1e-6;
  if (*worst <= *s.parallel->pipeline_activation_limit + kRounding) return;
  const std::string peak = number_text(std::ceil(*worst * 1000 - kRounding) / 1000);
  problems.add(
      {Setting(&Parallel::pipeline_activation_limit).flag(),
       number_text(*s.parallel->pipeline_activation_limit) + " is less than the " + peak +
           " microbatches that rank " + text_of(worst - peaks.begin()) +
           " of the pipeline keeps with --pipeline-schedule " + request.name,
       "use " + peak + " or more, or --pipeline-schedule auto, which searches for one that fits"});
}

Rules rules_without_layout() {
  return {
      rule([](S s) { return !end_flags(s).empty() && !account_flags(s).empty(); },
           {end_flags,
            {"excludes ", account_flags},
            "use only the first, which sets the layers of the end ranks"}),
      rule(
          [](S s) {
            return !end_flags(s).empty() && s.parallel->num_layers_per_virtual_pipeline_stage;
          },
          {end_flags,
           {"excludes ", &Parallel::num_layers_per_virtual_pipeline_stage},
           {"use ", &Parallel::num_virtual_stages_per_pipeline_rank, " N"}}),
      rule([](S s) { return is_measured(s) && !excluded_by_measurement(s).empty(); },
           [](S s) {
             return Message{
                 measured_flag,
                 {"sets the layers of all stages, and excludes ", excluded_by_measurement},
                 leave_out(excluded_by_measurement(s), s) +
                     Words{", or use ", &Parallel::pipeline_split, " even"}};
           }),
  };
}

}  // namespace

const Rules& pipeline_rules() {
  static const Rules rules = {
      rule([](S s) { return pp(s) == 1 && !pipeline_flags(s).empty(); },
           [](S s) {
             return Message{
                 pipeline_flags,
                 {"there is no pipeline, ", &Parallel::pipeline_model_parallel_size, " is 1"},
                 Words{"add ", &Parallel::pipeline_model_parallel_size, " N above 1, or "} +
                     leave_out(pipeline_flags(s), s)};
           }),
      excludes(&Parallel::num_virtual_stages_per_pipeline_rank,
               &Parallel::num_layers_per_virtual_pipeline_stage),
      rule([](S s) { return has_layout(s) && !excluded_by_layout(s).empty(); },
           [](S s) {
             return Message{&Parallel::pipeline_model_parallel_layout,
                            {"defines all stages, and excludes ", excluded_by_layout},
                            leave_out(excluded_by_layout(s), s)};
           }),
      when([](S s) { return !has_layout(s); }, rules_without_layout()),
  };
  return rules;
}

const Rules& layout_rules() {
  static const Rules rules = reported(
      layout_problem,
      {&Model::num_layers, &Parallel::pipeline_model_parallel_size, &Parallel::pipeline_schedule,
       &Parallel::num_virtual_stages_per_pipeline_rank,
       &Parallel::num_layers_per_virtual_pipeline_stage,
       &Parallel::decoder_first_pipeline_num_layers, &Parallel::decoder_last_pipeline_num_layers,
       &Parallel::account_for_embedding_in_pipeline_split,
       &Parallel::account_for_loss_in_pipeline_split, &Parallel::pipeline_model_parallel_layout,
       &Parallel::pipeline_split});
  return rules;
}

bool has_microbatch_groups(S s) {
  const std::string& name = s.parallel->pipeline_schedule;
  const bool has_turns =
      name.empty() || name == "interleaved" || name == "combined-1f1b" || name == "auto";
  if (pp(s) == 1 || !has_turns) return false;
  try {
    return num_pipeline_chunks(*s.parallel, s.model->num_layers) > 1;
  } catch (const UserError&) {
    return true;  // another rule reports it
  }
}

Problems check_pipeline_batches(S s, std::int64_t num_microbatches) {
  Problems problems;
  const bool is_known =
      s.model->num_layers > 0 || !s.parallel->num_layers_per_virtual_pipeline_stage;
  if (pp(s) == 1 || num_microbatches < 1 || !is_known ||
      !evaluate(pipeline_rules(), s, {}).empty() || layout_problem(s))
    return problems;
  ScheduleRequest request{.name = schedule_name(*s.parallel, s.model->num_layers),
                          .num_ranks = pp(s),
                          .num_chunks = num_pipeline_chunks(*s.parallel, s.model->num_layers),
                          .num_microbatches = num_microbatches};
  const bool has_groups = request.name == "auto" || fixed_num_chunks(request.name) == 0;
  if (has_groups)
    request.microbatch_group =
        s.parallel->microbatch_group_size_per_virtual_pipeline_stage.value_or(0);
  check_group(request, problems);
  if (s.parallel->pipeline_activation_limit && problems.empty() && request.name != "auto")
    check_limit(s, request, problems);
  return problems;
}

}  // namespace megatron
