#include "megatron/config/plan_options.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/memory_plan_fields.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/plan_run_fields.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"

namespace megatron {
namespace {

const FieldTable<LayoutPlanOptions>& layout_plan_table() {
  using Options = LayoutPlanOptions;
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    add_layout_plan_fields(t);
    t.field("json", &Options::json, "print the layouts as JSON");
    add_plan_run_fields(t);
    return t;
  }();
  return table;
}

const FieldTable<MemoryPlanOptions>& memory_plan_table() {
  using Options = MemoryPlanOptions;
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    add_memory_plan_fields(t);
    t.field("json", &Options::json, "print the memory of every rank of the pipeline as JSON");
    t.field("world_size", &Options::world_size, "number of ranks").between(1, 1'000'000);
    add_plan_run_fields(t);
    return t;
  }();
  return table;
}

template <class Options>
Options read_plan(const FieldTable<Options>& table, std::span<const std::string> args,
                  const std::vector<std::string>& families) {
  Options options;
  const FieldSet& own = table.set();
  options.parsed = parse_command_line(families.empty() ? own : with_families(own, families), args,
                                      &options, "plan");
  return options;
}

/// Checks what a run checks on one rank, as far as layouts and memory depend on it.
void check_planned_run(Settings& run, ParseResult& parsed) {
  Problems problems;
  translate_legacy_flags(run, parsed, problems);
  Settings settings = run;
  const auto require = [&](const char* flag, std::int64_t value) {
    if (value == 0) problems.add({flag, "is required", std::string("add ") + flag + " N"});
  };
  resolve(settings);
  require("--seq-length", settings.training->seq_length);
  require("--micro-batch-size", settings.training->micro_batch_size);
  if (settings.model->num_layers > 0) require("--vocab-size", settings.model->vocab_size);
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

LayoutPlanOptions read_layout_plan(std::span<const std::string> args,
                                   const std::vector<std::string>& families) {
  return read_plan(layout_plan_table(), args, families);
}

void check_layout_plan(LayoutPlanOptions& options) {
  check_planned_run(options.run, options.parsed);
}

std::int64_t MemoryPlanOptions::num_ranks() const {
  const MeshSizes sizes = mesh_sizes(*run.parallel);
  const std::int64_t dense = sizes.tp * sizes.cp, experts = sizes.expert_tp() * sizes.ep;
  return world_size.value_or(std::max(dense, experts) * sizes.pp);
}

MemoryPlanOptions read_memory_plan(std::span<const std::string> args,
                                   const std::vector<std::string>& families) {
  return read_plan(memory_plan_table(), args, families);
}

void check_memory_plan(MemoryPlanOptions& options) {
  check_planned_run(options.run, options.parsed);
  if (options.run.memory->has_budget())
    throw UserError({options.run.memory->memory_budget.empty() ? "--recompute-granularity adaptive"
                                                               : "--memory-budget",
                     "has no effect here: its plan depends on measured times",
                     "leave it out, or give the --activation-plan that such a run prints"});
  check_mesh_sizes(mesh_sizes(*options.run.parallel), options.num_ranks()).throw_if_any();
}

}  // namespace megatron
