// Implements `megatron plan --show-schedule`, which draws and compares pipeline schedules. With
// --show-context plan_context.cpp draws context parallelism. Without these flags the engine
// searches layouts (engine/plan.cpp), with --memory predicts the memory of a run
// (engine/plan_memory.cpp), or with --checkpoint the cost of its checkpoints
// (engine/plan_checkpoint.cpp).
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/terminal.h"
#include "megatron/cli/command.h"
#include "megatron/cli/plan_parts.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/plan_options.h"
#include "megatron/schedules/draw.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/timeline.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxTableCells = 4'000'000;

std::int64_t num_microbatches(const PlanOptions& options) {
  if (!options.global_batch_size) {
    const std::int64_t by_default =
        options.micro_batch_size ? 1 : 2 * options.pipeline_model_parallel_size;  // as in a run
    return options.num_microbatches.value_or(by_default);
  }
  if (options.num_microbatches)
    throw UserError({"--num-microbatches excludes --global-batch-size", "", "give one of the two"});
  const std::int64_t samples = *options.global_batch_size,
                     each = options.micro_batch_size.value_or(1),
                     pipelines = options.data_parallel_size.value_or(1);
  if (samples % each == 0 && samples / each % pipelines == 0) return samples / each / pipelines;
  throw UserError(
      {"--global-batch-size must be a multiple of --micro-batch-size times --data-parallel-size",
       std::to_string(samples) + ", " + std::to_string(each) + " and " + std::to_string(pipelines),
       ""});
}

CostModel costs_for(const PlanOptions& options, std::int64_t num_chunks) {
  const auto parts = parse_stage_times(options.stage_times, options.pipeline_model_parallel_size);
  return {.stages = regroup_stage_costs(parts, options.pipeline_model_parallel_size * num_chunks),
          .message_s = options.message_time,
          .joined = options.joined_time_share};
}

/// Returns the layouts that a search may choose from: those with the given number of chunks, else
/// those with one and two chunks.
SearchRequest search_request(const PlanOptions& options) {
  SearchRequest request{
      .num_ranks = options.pipeline_model_parallel_size,
      .num_microbatches = num_microbatches(options),
      .layouts = {},
      .activation_limit = options.pipeline_activation_limit.value_or(0),
      .microbatch_group = options.microbatch_group_size_per_virtual_pipeline_stage.value_or(0)};
  const auto add = [&](std::int64_t chunks, ChunkOrder order) {
    request.layouts.push_back({chunks, order, costs_for(options, chunks)});
  };
  const auto given = options.num_virtual_stages_per_pipeline_rank;
  if (!given || *given == 1) add(1, ChunkOrder::loop);
  if (given && *given > 1) add(*given, ChunkOrder::loop);
  if (!given && request.num_ranks > 1) add(2, ChunkOrder::loop);
  if (given.value_or(request.num_ranks > 1 ? 2 : 1) == 2) add(2, ChunkOrder::v);
  return request;
}

ScheduleCandidate fixed_schedule(const PlanOptions& options) {
  const auto given = options.num_virtual_stages_per_pipeline_rank;
  ScheduleRequest request{
      .name = options.pipeline_schedule,
      .num_ranks = options.pipeline_model_parallel_size,
      .num_microbatches = num_microbatches(options),
      .microbatch_group = options.microbatch_group_size_per_virtual_pipeline_stage.value_or(0)};
  if (request.name.empty()) request.name = given.value_or(1) > 1 ? "interleaved" : "1f1b";
  if (request.microbatch_group > 0 && fixed_num_chunks(request.name) > 0)
    throw UserError(
        {"--microbatch-group-size-per-virtual-pipeline-stage has no effect with "
         "--pipeline-schedule " +
             request.name,
         "", "leave it out"});
  request.num_chunks = given.value_or(std::max<std::int64_t>(1, fixed_num_chunks(request.name)));
  ScheduleCandidate candidate;
  candidate.schedule = make_schedule(request);
  candidate.costs = costs_for(options, request.num_chunks);
  return candidate;
}

/// Returns the number of chunks per rank that a run with these flags has.
void take_chunks_of_run(PlanOptions& options) {
  const bool has_layout = !options.pipeline_model_parallel_layout.empty();
  if (options.num_virtual_stages_per_pipeline_rank ||
      !(has_layout || options.num_layers_per_virtual_pipeline_stage))
    return;
  if (options.num_layers == 0)
    throw UserError({has_layout ? "--pipeline-model-parallel-layout"
                                : "--num-layers-per-virtual-pipeline-stage",
                     "needs --num-layers", "add --num-layers N"});
  ParallelConfig parallel;
  parallel.pipeline_model_parallel_size = options.pipeline_model_parallel_size;
  parallel.num_layers_per_virtual_pipeline_stage = options.num_layers_per_virtual_pipeline_stage;
  parallel.pipeline_model_parallel_layout = options.pipeline_model_parallel_layout;
  const std::int64_t decoder = options.decoder_num_layers.value_or(options.num_layers),
                     layers = options.num_layers + (options.model == "t5" ? decoder : 0),
                     chunks = num_pipeline_chunks(parallel, layers);
  if (chunks > 1) options.num_virtual_stages_per_pipeline_rank = chunks;
}

void check_size(const PlanOptions& options) {
  const std::int64_t chunks = options.num_virtual_stages_per_pipeline_rank.value_or(2),
                     microbatches = num_microbatches(options);
  if (options.pipeline_model_parallel_size * chunks * microbatches <= kMaxTableCells) return;
  throw UserError({"ranks times chunks times microbatches are too many to draw",
                   std::to_string(options.pipeline_model_parallel_size) + ", " +
                       std::to_string(chunks) + " and " + std::to_string(microbatches),
                   "use at most " + std::to_string(kMaxTableCells) + " in total"});
}

void compare(const PlanOptions& options) {
  const SearchRequest request = search_request(options);
  std::vector<ScheduleCandidate> candidates = fixed_candidates(request);
  candidates.push_back(search_schedule(request));
  if (std::string& name = candidates.back().schedule.name; name != "auto") name = "auto = " + name;
  std::cout << comparison_table(std::move(candidates), request.activation_limit)
            << lower_bound_text(request);
}

void refuse_beside_compare(const PlanOptions& options) {
  const char* other = options.json                         ? "--json"
                      : !options.svg.empty()               ? "--svg"
                      : !options.trace.empty()             ? "--trace"
                      : !options.pipeline_schedule.empty() ? "--pipeline-schedule"
                                                           : nullptr;
  if (other)
    throw UserError({"--compare excludes " + std::string(other) + ", which concerns one schedule",
                     "", "leave one of the two out"});
}

void check_limit(const PlanOptions& options, const Simulation& run) {
  const double peak = *std::max_element(run.peak_activation.begin(), run.peak_activation.end());
  const double limit = options.pipeline_activation_limit.value_or(peak);
  if (peak > limit * (1 + 1e-9))
    std::cerr << "note: a rank keeps the activations of " << peak
              << " microbatches, above --pipeline-activation-limit " << limit << "\n";
}

void show(const PlanOptions& options) {
  const ScheduleCandidate chosen = options.pipeline_schedule == "auto"
                                       ? search_schedule(search_request(options))
                                       : fixed_schedule(options);
  const Schedule schedule = with_messages(chosen.schedule);
  const Simulation run = simulate(schedule, chosen.costs);
  check_limit(options, run);
  if (!options.svg.empty()) write_file_atomically(options.svg, draw_svg(schedule, run));
  if (!options.trace.empty())
    write_file_atomically(options.trace, trace_json(timeline(schedule, run.spans)));
  const bool colour = is_terminal(STDOUT_FILENO) && std::getenv("NO_COLOR") == nullptr;
  std::cout << (options.json
                    ? plan_json(schedule, run)
                    : draw_text(schedule, run,
                                {.width = terminal_width(STDOUT_FILENO), .colour = colour}));
}

}  // namespace

const FieldSet& plan_fields() { return plan_table().set(); }

namespace {

bool is_given(std::span<const std::string> args, const std::string& flag) {
  return std::ranges::any_of(
      args, [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
}

/// Throws if one of `others` is given together with `flag`.
void refuse_beside(std::span<const std::string> args, const std::string& flag,
                   std::initializer_list<const char*> others) {
  for (const char* other : others) {
    if (is_given(args, other))
      throw UserError({std::string(other) + " excludes " + flag, "", "leave one of the two out"});
  }
}

/// Reports mistakes in the flags before the engine is loaded.
int run_checked(const char* command, PlanMode mode, std::span<const std::string> args,
                void (*check)(PlanOptions&)) {
  PlanOptions options = read_plan(mode, args);
  check(options);
  std::cerr << notes_text(options.parsed.notes);
  return run_in_engine(command, args);
}

}  // namespace

int run_plan(std::span<const std::string> args) {
  const bool wants_schedule = is_given(args, "--show-schedule"),
             wants_layouts = is_given(args, "--world-size"),
             wants_help = is_given(args, "--help") || is_given(args, "-h");
  if (is_given(args, "--show-context") && !wants_help) {
    refuse_beside(args, "--show-context",
                  {"--show-schedule", "--world-size", "--compare", "--memory", "--checkpoint",
                   "--svg", "--trace"});
    return run_plan_context(args);
  }
  if (is_given(args, "--memory") && !wants_help) {
    refuse_beside(args, "--memory",
                  {"--checkpoint", "--show-schedule", "--compare", "--gpus-per-host",
                   "--memory-limit-gib", "--max-layouts"});
    return run_checked("plan --memory", PlanMode::memory, args, check_memory_plan);
  }
  if (is_given(args, "--checkpoint") && !wants_help) {
    refuse_beside(
        args, "--checkpoint",
        {"--show-schedule", "--compare", "--memory", "--memory-limit-gib", "--max-layouts"});
    return run_checked("plan --checkpoint", PlanMode::checkpoint, args, check_memory_plan);
  }
  if (wants_layouts && !wants_schedule && !wants_help)
    return run_checked("plan", PlanMode::layouts, args, check_layout_plan);
  PlanOptions options = read_plan(PlanMode::schedule, args);
  std::cerr << notes_text(options.parsed.notes);
  if (!wants_schedule && options.compare)
    throw UserError({"--compare", "compares pipeline schedules, which --show-schedule plans",
                     "add --show-schedule"});
  if (!wants_schedule)
    throw UserError(
        {"--world-size",
         "is required, or --show-schedule, --show-context, --memory or "
         "--checkpoint",
         "add --world-size N for the layouts of a model over N ranks, "
         "--show-schedule to draw a pipeline schedule, --show-context to draw context "
         "parallelism, --memory for where the memory of a run goes, or --checkpoint for what "
         "its checkpoints take"});
  for (const char* flag :
       {"--world-size", "--gpus-per-host", "--memory-limit-gib", "--max-layouts"}) {
    if (is_given(args, flag))
      throw UserError({std::string(flag) + " excludes --show-schedule", "",
                       "use --pipeline-model-parallel-size for the ranks of a schedule"});
  }
  if (options.compare) refuse_beside_compare(options);
  take_chunks_of_run(options);
  if (options.data_parallel_size && !options.global_batch_size)
    std::cerr << "note: --data-parallel-size: without effect: it divides --global-batch-size, "
                 "which is not given\n";
  check_size(options);
  options.compare ? compare(options) : show(options);
  return 0;
}

}  // namespace megatron
