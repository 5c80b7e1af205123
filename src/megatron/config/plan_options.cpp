#include "megatron/config/plan_options.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/model_families.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/run_flags.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"
#include "megatron/schedules/make_schedule.h"

namespace megatron {
namespace {

using Options = PlanOptions;

std::vector<std::string> schedule_choices() {
  std::vector<std::string> names = schedule_names();
  names.push_back("auto");
  return names;
}

void add_pipeline_fields(FieldTable<Options>& t) {
  t.group("Pipeline");
  t.field("pipeline_model_parallel_size", &Options::pipeline_model_parallel_size,
          "number of pipeline ranks")
      .between(1, 4096);
  t.field("pipeline_schedule", &Options::pipeline_schedule,
          "schedule to draw; default: 1f1b, or interleaved with several chunks")
      .choices(schedule_choices());
  t.field("num_virtual_stages_per_pipeline_rank", &Options::num_virtual_stages_per_pipeline_rank,
          "number of model chunks per rank")
      .between(1, 64);
  t.field("num_layers", &Options::num_layers,
          "number of layers, for --num-layers-per-virtual-pipeline-stage")
      .between(1, kMaxLayers);
  t.field("decoder_num_layers", &Options::decoder_num_layers,
          "t5: number of further layers, of the decoder; default: --num-layers")
      .between(1, kMaxLayers);
  t.field("num_layers_per_virtual_pipeline_stage", &Options::num_layers_per_virtual_pipeline_stage,
          "number of layers per chunk, instead of the number of chunks per rank")
      .at_least(1);
  t.field("pipeline_model_parallel_layout", &Options::pipeline_model_parallel_layout,
          "layers of each stage; the number of stages determines the chunks per rank")
      .value_name("LAYOUT");
  t.field("microbatch_group_size_per_virtual_pipeline_stage",
          &Options::microbatch_group_size_per_virtual_pipeline_stage,
          "interleaved: number of consecutive microbatches that a chunk processes before the next "
          "chunk; default: the number of ranks")
      .at_least(1);
  t.field("num_microbatches", &Options::num_microbatches,
          "number of microbatches per step; default: twice the number of ranks")
      .between(1, 1e6);
  t.field("global_batch_size", &Options::global_batch_size,
          "number of samples per step, instead of --num-microbatches")
      .at_least(1);
  t.field("micro_batch_size", &Options::micro_batch_size,
          "number of samples per microbatch; without --global-batch-size a step has one microbatch")
      .at_least(1);
  t.field("data_parallel_size", &Options::data_parallel_size,
          "number of pipelines that share the samples of a step; default: 1")
      .at_least(1);
  t.field("pipeline_activation_limit", &Options::pipeline_activation_limit,
          "largest number of microbatches whose activations a rank may keep")
      .above(0);
}

void add_time_fields(FieldTable<Options>& t) {
  t.group("Times, in any unit");
  t.field("stage_times", &Options::stage_times,
          "times of the forward pass, the input gradients and the weight gradients of a rank's "
          "layers; or one entry for each part of the model, in order; or a file with such lines; "
          "an optional fourth number is the activation memory of a microbatch")
      .value_name("F,B,W");
  t.field("message_time", &Options::message_time, "time of a message between ranks").at_least(0);
  t.field(
       "joined_time_share", &Options::joined_time_share,
       "combined-1f1b: time of an overlapped forward and backward pass, as a fraction of the sum "
       "of both")
      .above(0)
      .at_most(1);
}

void add_world_size(FieldTable<Options>& t) {
  t.field(
       "world_size", &Options::world_size,
       "number of ranks: print the layouts of a model over them, the best first, with the memory "
       "of a rank by part; sizes of parallelism that are given stay")
      .between(1, 1'000'000);
}

void add_gpus_per_host(FieldTable<Options>& t) {
  t.field("gpus_per_host", &Options::gpus_per_host,
          "number of ranks on a host: tensor times context parallelism stays within it, unless "
          "their sizes are given")
      .at_least(1);
}

void add_layout_fields(FieldTable<Options>& t) {
  t.group("Layouts");
  add_world_size(t);
  add_gpus_per_host(t);
  t.field("memory_limit_gib", &Options::memory_limit_gib,
          "memory of a rank in GiB: layouts that need more come last")
      .above(0);
  t.field("max_layouts", &Options::max_layouts, "largest number of layouts to print").at_least(1);
}

void add_memory_field(FieldTable<Options>& t) {
  t.group("Memory");
  t.field("memory", &Options::memory,
          "with the flags of a run: print the memory of a rank by part, as --log-memory measures "
          "it; without --world-size of the fewest ranks that the sizes of parallelism allow");
}

void add_checkpoint_fields(FieldTable<Options>& t) {
  t.group("Checkpoints");
  t.field("checkpoint", &Options::checkpoint,
          "with the flags of a run: print the files, bytes and seconds of its checkpoints, and how "
          "often to save");
  t.field("storage_gbytes_per_s", &Options::storage_gbytes_per_s,
          "--checkpoint: bandwidth in GB/s of the storage that all hosts share")
      .above(0);
  t.field("host_gbytes_per_s", &Options::host_gbytes_per_s,
          "--checkpoint: bandwidth in GB/s of a host to the storage")
      .above(0);
  t.field("host_mtbf_hours", &Options::host_mtbf_hours,
          "--checkpoint: mean time between failures of a host in hours")
      .above(0);
  t.field("step_seconds", &Options::step_seconds,
          "--checkpoint: time of a step, to judge --save-interval")
      .above(0);
}

void add_context_fields(FieldTable<Options>& t) {
  t.group("Context parallelism");
  t.field("show_context", &Options::show_context,
          "with the flags of a run: draw which positions each rank of --context-parallel-size "
          "holds, what it computes and sends in each step of a layer's attention, and how long it "
          "waits");
  t.field("attention_tflops", &Options::attention_tflops,
          "--show-context: speed of a rank's attention in TFLOP/s")
      .above(0);
  t.field("link_gbytes_per_s", &Options::link_gbytes_per_s,
          "--show-context: bandwidth between two ranks in GB/s, in each direction")
      .above(0);
  t.field("link_latency_us", &Options::link_latency_us,
          "--show-context: time of an empty message or collective in microseconds")
      .at_least(0);
}

void add_json(FieldTable<Options>& t) {
  t.field("json", &Options::json,
          "print the layouts, or every step of the schedule or of context parallelism with its "
          "times, as JSON");
}

void add_files(FieldTable<Options>& t) {
  t.field("svg", &Options::svg, "write the drawing to this SVG file too").value_name("FILE");
  t.field("trace", &Options::trace, "write a trace for ui.perfetto.dev to this file too")
      .value_name("FILE");
}

void add_run(FieldTable<Options>& t, const RunFlagNotes& notes) {
  add_model_family(t, "type of the model, as for pretrain").hidden();
  include_run_flags(t, &Options::run, notes);
}

/// Returns the flags that a mode other than schedule reads.
FieldTable<Options> table_of(PlanMode mode) {
  FieldTable<Options> t;
  add_json(t);
  if (mode == PlanMode::layouts) add_layout_fields(t);
  if (mode == PlanMode::memory) {
    add_memory_field(t);
    add_world_size(t);
  }
  if (mode == PlanMode::checkpoint) {
    add_checkpoint_fields(t);
    add_world_size(t);
    add_gpus_per_host(t);
  }
  if (mode == PlanMode::context) add_context_fields(t);
  add_run(t, {});
  return t;
}

/// Checks what a run checks on one rank, as far as layouts and memory depend on it.
void check_planned_run(const std::string& family, Settings& run, ParseResult& parsed) {
  Problems problems;
  translate_legacy_flags(run, parsed, problems);
  resolve_stacks(family, parsed, *run.model);
  Settings settings = run;
  const auto require = [&](const char* flag, std::int64_t value) {
    if (value == 0) problems.add({flag, "is required", std::string("add ") + flag + " N"});
  };
  resolve(settings);
  require("--seq-length", settings.training->seq_length);
  require("--micro-batch-size", settings.training->micro_batch_size);
  const TokenizerConfig& tokenizer = *settings.tokenizer;
  const bool has_tokenizer = tokenizer.has_type_or_model() || !tokenizer.vocab_file.empty();
  if (settings.model->num_layers > 0 && settings.model->vocab_size == 0 && has_tokenizer)
    problems.add({"--vocab-size", "is required, because a plan reads no tokenizer",
                  "add --vocab-size N; `megatron tokenizer info FILE` prints it"});
  else if (settings.model->num_layers > 0)
    require("--vocab-size", settings.model->vocab_size);
  if (settings.parallel->hybrid_context_parallel)
    problems.add(
        {"--hybrid-context-parallel",
         "divides documents by their lengths, which a plan does not know",
         "leave it out, and plan with --seq-length of --max-seqlen-per-dp-cp-rank tokens"});
  const ParallelConfig& parallel = *settings.parallel;
  if (std::ranges::count(parallel.cp_comm_type, CpCommType::a2a_p2p) > 0 &&
      parallel.hierarchical_context_parallel_sizes.size() != 2)
    problems.add({"--cp-comm-type a2a+p2p", "needs two --hierarchical-context-parallel-sizes",
                  "add them together with --context-parallel-size, or plan with another type"});
  problems.add(validate_model(settings));
  add_notes(problems.notes(), parsed.notes);
  problems.throw_if_any();
}

}  // namespace

const FieldTable<PlanOptions>& plan_table() {
  return field_table<Options>([](auto& t) {
    constexpr const char* kUnused = "without effect on a schedule";
    t.about(
        "Prints the layouts of a model over --world-size ranks with the memory of a rank, or with "
        "--show-schedule draws a pipeline schedule and prints its time, its bubble and the "
        "activations that the ranks keep, or compares all schedules. With --show-context draws "
        "the attention of a run over the ranks of context parallelism, with --memory prints where "
        "the memory of a run goes, and with --checkpoint what its checkpoints take.");
    t.field("show_schedule", &Options::show_schedule, "plan a schedule instead of a layout");
    t.field("compare", &Options::compare, "print a table of all schedules instead of a drawing");
    add_json(t);
    add_files(t);
    add_layout_fields(t);
    add_pipeline_fields(t);
    add_context_fields(t);
    add_memory_field(t);
    add_checkpoint_fields(t);
    add_time_fields(t);
    add_run(t, {.architecture = kUnused, .others = kUnused});
  });
}

PlanOptions read_plan(PlanMode mode, std::span<const std::string> args,
                      const std::vector<std::string>& families) {
  FieldSet fields = mode == PlanMode::schedule ? plan_table().set() : table_of(mode).set();
  if (!families.empty()) fields = with_families(std::move(fields), families);
  PlanOptions options;
  options.parsed = parse_command_line(fields, args, &options, "plan");
  return options;
}

std::int64_t PlanOptions::num_ranks() const {
  const MeshSizes sizes = mesh_sizes(*run.parallel);
  const std::int64_t dense = sizes.tp * sizes.cp, experts = sizes.expert_tp() * sizes.ep;
  return world_size > 0 ? world_size : std::max(dense, experts) * sizes.pp;
}

void check_layout_plan(PlanOptions& options) {
  const Setting pattern = &TransformerConfig::hybrid_layer_pattern;
  if (std::erase(options.run.model->hybrid_layer_pattern, '|') > 0)
    add_notes({{"its | are without effect: the plan divides the layers into stages",
                {options.parsed.origin(pattern.name()).where}}},
              options.parsed.notes);
  check_planned_run(options.model, options.run, options.parsed);
}

void check_memory_plan(PlanOptions& options) {
  check_planned_run(options.model, options.run, options.parsed);
  if (options.run.memory->has_budget())
    throw UserError({options.run.memory->memory_budget.empty() ? "--recompute-granularity adaptive"
                                                               : "--memory-budget",
                     "has no effect here: its plan depends on measured times",
                     "leave it out, or give the --activation-plan that such a run prints"});
  check_mesh_sizes(mesh_sizes(*options.run.parallel), options.num_ranks()).throw_if_any();
}

}  // namespace megatron
