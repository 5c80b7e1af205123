// Rules between the pipeline flags, and between them and the layers and the batches.
#include <algorithm>
#include <cmath>
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
bool has_chunks(S s) { return s.parallel->num_virtual_stages_per_pipeline_rank.value_or(1) > 1; }

/// Returns the error of the pipeline layout, if the number of layers is known. It does not depend
/// on measured costs.
std::optional<UserError::Parts> layout_problem(S s) {
  if (s.model->num_layers < 1 || s.model->num_layers > kMaxLayers ||
      !evaluate(pipeline_rules(), s, {}).empty())
    return std::nullopt;
  try {
    const LayerCosts any;
    pipeline_layout(*s.parallel, *s.model, &any);
    return std::nullopt;
  } catch (const UserError& error) {
    return error.parts();
  }
}

void check_group(S s, const ScheduleRequest& request, Problems& problems) {
  const std::int64_t group = request.microbatch_group, least = request.num_ranks,
                     most = std::max(least, request.num_microbatches);
  if (group == 0 || (group >= least && group <= most)) return;
  const Words less = {group, " is less than ", with_value(&Parallel::pipeline_model_parallel_size)},
              more = {group, " is more than the ", request.num_microbatches,
                      " microbatches of the first batch"};
  const Message message = {
      &Parallel::microbatch_group_size_per_virtual_pipeline_stage, group < least ? less : more,
      least == most ? Words{"use ", least} : Words{"use ", least, " to ", most}};
  problems.add(message.text(s));
}

/// Returns the activations of a microbatch in each stage, in units of those of an average rank's
/// layers. They are kept until the weight gradients are computed. Before a measurement all stages
/// count alike.
CostModel activations(S s, const Schedule& schedule) {
  const double even = 1 / static_cast<double>(schedule.num_chunks);
  CostModel costs = uniform_costs(schedule, {.activation = even, .weight_gradient = even});
  if (s.model->num_layers < 1 || s.parallel->pipeline_split == "measured") return costs;
  const double share =
      static_cast<double>(s.model->num_all_layers()) / static_cast<double>(schedule.num_ranks);
  const PipelineLayout layout = pipeline_layout(*s.parallel, *s.model);
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
  const Message message = {
      &Parallel::pipeline_activation_limit,
      {value(&Parallel::pipeline_activation_limit), " is less than the ", peak,
       " microbatches that rank ", worst - peaks.begin(), " of the pipeline keeps with ",
       &Parallel::pipeline_schedule, " ", request.name},
      {"use ", peak, " or more, or ", &Parallel::pipeline_schedule,
       " auto, which searches for one that fits"}};
  problems.add(message.text(s));
}

Rules flag_rules() {
  const Condition chunk_size = &Parallel::num_layers_per_virtual_pipeline_stage;
  const Condition chunks = {has_chunks, &Parallel::num_virtual_stages_per_pipeline_rank};
  const Condition layout = &Parallel::pipeline_model_parallel_layout;
  const Condition measured = is(&Parallel::pipeline_split, "measured");
  const Condition ends = any(
      {&Parallel::decoder_first_pipeline_num_layers, &Parallel::decoder_last_pipeline_num_layers});
  const Condition accounts = any({&Parallel::account_for_embedding_in_pipeline_split,
                                  &Parallel::account_for_loss_in_pipeline_split});
  const Condition unmeasured = any({ends, accounts});
  const Condition unlisted = any({chunks, chunk_size, ends, accounts, measured});
  const Condition of_pipelines = any({&Parallel::pipeline_schedule, chunks, chunk_size, ends,
                                      layout, measured, &Parallel::pipeline_activation_limit});
  return {
      refuse({of_pipelines, is(&Parallel::pipeline_model_parallel_size, "1")},
             {"there is no pipeline, ", &Parallel::pipeline_model_parallel_size, " is 1"},
             Words{"add ", &Parallel::pipeline_model_parallel_size, " N above 1, or leave "} +
                 of_pipelines.words + " out"),
      idle(
          {&Parallel::overlap_p2p_communication, &Parallel::account_for_embedding_in_pipeline_split,
           &Parallel::account_for_loss_in_pipeline_split},
          is(&Parallel::pipeline_model_parallel_size, "1")),
      excludes(&Parallel::num_virtual_stages_per_pipeline_rank, chunk_size),
      refuse({layout, unlisted}, "defines all stages, and excludes " + unlisted.words,
             "leave " + unlisted.words + " out"),
      when(without(layout),
           {excludes(ends, accounts,
                     {.fix = "use only the first, which sets the layers of the end ranks"}),
            excludes(ends, chunk_size,
                     {.fix = {"use ", &Parallel::num_virtual_stages_per_pipeline_rank, " N"}}),
            refuse({measured, unmeasured},
                   "sets the layers of all stages, and excludes " + unmeasured.words,
                   "leave " + unmeasured.words +
                       Words{" out, or use ", &Parallel::pipeline_split, " even"})}),
  };
}

}  // namespace

const Rules& pipeline_rules() {
  static const Rules rules = flag_rules();
  return rules;
}

const Rules& layout_rules() {
  static const Rules rules = reported(
      layout_problem,
      {&Model::num_layers, &Model::mtp_num_layers, &Parallel::pipeline_model_parallel_size,
       &Parallel::pipeline_schedule, &Parallel::num_virtual_stages_per_pipeline_rank,
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
  check_group(s, request, problems);
  if (s.parallel->pipeline_activation_limit && problems.empty() && request.name != "auto")
    check_limit(s, request, problems);
  return problems;
}

}  // namespace megatron
