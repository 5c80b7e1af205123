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
#include "megatron/config/settings.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/transformer_config.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/simulate.h"

namespace megatron {
namespace {

using S = const Settings&;

struct FlagState {
  const char* flag;
  bool is_given;
};

/// Returns the flags that are given as "--a, --b".
std::string names_of(std::initializer_list<FlagState> flags) {
  std::string names;
  for (const auto& [flag, is_given] : flags) {
    if (is_given) names += (names.empty() ? "" : ", ") + std::string(flag);
  }
  return names;
}

std::int64_t pp(S s) { return s.parallel->pipeline_model_parallel_size; }
bool has_layout(S s) { return !s.parallel->pipeline_model_parallel_layout.empty(); }
bool is_measured(S s) { return s.parallel->pipeline_split == "measured"; }

std::string end_flags(S s) {
  return names_of({{"--decoder-first-pipeline-num-layers",
                    s.parallel->decoder_first_pipeline_num_layers.has_value()},
                   {"--decoder-last-pipeline-num-layers",
                    s.parallel->decoder_last_pipeline_num_layers.has_value()}});
}

std::string account_flags(S s) {
  return names_of(
      {{"--account-for-embedding-in-pipeline-split",
        s.parallel->account_for_embedding_in_pipeline_split},
       {"--account-for-loss-in-pipeline-split", s.parallel->account_for_loss_in_pipeline_split}});
}

std::string virtual_flags(S s) {
  return names_of({{"--num-virtual-stages-per-pipeline-rank",
                    s.parallel->num_virtual_stages_per_pipeline_rank.value_or(1) > 1},
                   {"--num-layers-per-virtual-pipeline-stage",
                    s.parallel->num_layers_per_virtual_pipeline_stage.has_value()}});
}

std::string listed(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) {
    if (!part.empty()) all += (all.empty() ? "" : ", ") + part;
  }
  return all;
}

/// Returns the given flags that only a pipeline uses.
std::string pipeline_flags(S s) {
  return listed({names_of({{"--pipeline-schedule", !s.parallel->pipeline_schedule.empty()}}),
                 virtual_flags(s), end_flags(s),
                 names_of({{"--pipeline-model-parallel-layout", has_layout(s)},
                           {"--pipeline-split measured", is_measured(s)},
                           {"--pipeline-activation-limit",
                            s.parallel->pipeline_activation_limit.has_value()}})});
}

std::string excluded_by_layout(S s) {
  return listed({virtual_flags(s), end_flags(s), account_flags(s),
                 names_of({{"--pipeline-split measured", is_measured(s)}})});
}

std::string one_of(const std::string& flags) {
  return flags.find(',') == std::string::npos ? "it" : "them";
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

const std::vector<std::string_view> kLayoutFields{"num_layers",
                                                  "pipeline_model_parallel_size",
                                                  "pipeline_schedule",
                                                  "num_virtual_stages_per_pipeline_rank",
                                                  "num_layers_per_virtual_pipeline_stage",
                                                  "decoder_first_pipeline_num_layers",
                                                  "decoder_last_pipeline_num_layers",
                                                  "account_for_embedding_in_pipeline_split",
                                                  "account_for_loss_in_pipeline_split",
                                                  "pipeline_model_parallel_layout",
                                                  "pipeline_split"};

void check_group(const ScheduleRequest& request, Problems& problems) {
  const std::int64_t group = request.microbatch_group, least = request.num_ranks,
                     most = std::max(least, request.num_microbatches);
  if (group == 0 || (group >= least && group <= most)) return;
  problems.add(
      {"--microbatch-group-size-per-virtual-pipeline-stage",
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
      {"--pipeline-activation-limit",
       number_text(*s.parallel->pipeline_activation_limit) + " is less than the " + peak +
           " microbatches that rank " + text_of(worst - peaks.begin()) +
           " of the pipeline keeps with --pipeline-schedule " + request.name,
       "use " + peak + " or more, or --pipeline-schedule auto, which searches for one that fits"});
}

}  // namespace

const std::vector<Rule>& pipeline_rules() {
  static const std::vector<Rule> rules = {
      {{"pipeline_model_parallel_size"},
       [](S s) { return pp(s) == 1 && !pipeline_flags(s).empty(); },
       [](S s) {
         return UserError::Parts{pipeline_flags(s),
                                 "there is no pipeline, --pipeline-model-parallel-size is 1",
                                 "add --pipeline-model-parallel-size N above 1, or leave " +
                                     one_of(pipeline_flags(s)) + " out"};
       }},
      {{},
       [](S s) {
         return s.parallel->num_virtual_stages_per_pipeline_rank &&
                s.parallel->num_layers_per_virtual_pipeline_stage;
       },
       [](S) {
         return UserError::Parts{"--num-virtual-stages-per-pipeline-rank",
                                 "excludes --num-layers-per-virtual-pipeline-stage",
                                 "give one of the two"};
       }},
      {{},
       [](S s) { return has_layout(s) && !excluded_by_layout(s).empty(); },
       [](S s) {
         return UserError::Parts{"--pipeline-model-parallel-layout",
                                 "defines all stages, and excludes " + excluded_by_layout(s),
                                 "leave " + one_of(excluded_by_layout(s)) + " out"};
       }},
      {{},
       [](S s) { return !has_layout(s) && !end_flags(s).empty() && !account_flags(s).empty(); },
       [](S s) {
         return UserError::Parts{end_flags(s), "excludes " + account_flags(s),
                                 "use only the first, which sets the layers of the end ranks"};
       }},
      {{},
       [](S s) {
         return !has_layout(s) && !end_flags(s).empty() &&
                s.parallel->num_layers_per_virtual_pipeline_stage;
       },
       [](S s) {
         return UserError::Parts{end_flags(s), "excludes --num-layers-per-virtual-pipeline-stage",
                                 "use --num-virtual-stages-per-pipeline-rank N"};
       }},
      {{},
       [](S s) {
         return is_measured(s) && !has_layout(s) &&
                !listed({end_flags(s), account_flags(s)}).empty();
       },
       [](S s) {
         const std::string flags = listed({end_flags(s), account_flags(s)});
         return UserError::Parts{"--pipeline-split measured",
                                 "sets the layers of all stages, and excludes " + flags,
                                 "leave " + one_of(flags) + " out, or use --pipeline-split even"};
       }},
  };
  return rules;
}

const std::vector<Rule>& layout_rules() {
  static const std::vector<Rule> rules = {
      {kLayoutFields, [](S s) { return layout_problem(s).has_value(); },
       [](S s) { return layout_problem(s).value_or(UserError::Parts{}); }},
  };
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
