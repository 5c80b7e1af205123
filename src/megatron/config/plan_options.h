// The settings of `megatron plan`. Each mode reads the flags of a run as its launch script has
// them, so a flag of plan in one mode may be one of the run in another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/command_line.h"
#include "megatron/config/field_table.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/settings.h"

namespace megatron {

enum class PlanMode {
  schedule,    ///< --show-schedule: draws and compares pipeline schedules
  layouts,     ///< --world-size alone: searches layouts of a model over these ranks
  memory,      ///< --memory: predicts the memory of a rank of a run
  checkpoint,  ///< --checkpoint: the size and the times of a run's checkpoints
  context      ///< --show-context: draws the context parallelism of a run
};

struct PlanOptions {
  bool show_schedule = false, show_context = false, memory = false, checkpoint = false;
  bool compare = false, json = false;
  std::string svg, trace;  ///< files for the drawing of a schedule and for a trace
  // Of schedules.
  std::int64_t pipeline_model_parallel_size = 4;
  std::string pipeline_schedule;
  std::int64_t num_layers = 0;
  std::optional<std::int64_t> decoder_num_layers;
  std::optional<std::int64_t> num_layers_per_virtual_pipeline_stage;
  std::string pipeline_model_parallel_layout;
  std::optional<std::int64_t> num_virtual_stages_per_pipeline_rank,
      microbatch_group_size_per_virtual_pipeline_stage;
  std::optional<std::int64_t> num_microbatches, global_batch_size, micro_batch_size,
      data_parallel_size;
  std::vector<std::string> stage_times{"1,1,1"};
  double message_time = 0, joined_time_share = 1;
  std::optional<double> pipeline_activation_limit;
  // Of layouts and memory. A run may take this much of a GPU with 80 GiB: the CUDA context, NCCL's
  // buffers and gaps take the rest.
  std::int64_t world_size = 0, gpus_per_host = kGpusPerHost, max_layouts = 20;
  double memory_limit_gib = 72;
  // Of checkpoints. Hosts of the run of Llama 3 failed every 6,300 hours: 419 interruptions of
  // 2,048 hosts in 54 days (arXiv 2407.21783, section 3.3.4).
  double storage_gbytes_per_s = 100, host_gbytes_per_s = 5, host_mtbf_hours = 6300;
  std::optional<double> step_seconds;
  // Of context parallelism: about those of an H100 with a 400 Gbit/s network card.
  double attention_tflops = 400, link_gbytes_per_s = 50, link_latency_us = 10;

  std::string model = "gpt";
  Settings run;
  ParseResult parsed;

  /// Returns --world-size or, without it, the fewest ranks that the sizes of parallelism allow.
  std::int64_t num_ranks() const;
};

/// Returns the flags of all modes, for the help.
const FieldTable<PlanOptions>& plan_table();

/// Reads the flags of a mode. `families` names the model families; empty: those of the library.
PlanOptions read_plan(PlanMode mode, std::span<const std::string> args,
                      const std::vector<std::string>& families = {});

/// Sets what older flags such as --swiglu stand for. Then checks what a run checks on one rank, as
/// far as layouts depend on it, and adds the notes: call it before `parsed.notes` is printed.
/// Throws one UserError with all problems.
void check_layout_plan(PlanOptions& options);

/// Does the same as check_layout_plan(), and checks that the ranks fit the sizes of parallelism.
void check_memory_plan(PlanOptions& options);

}  // namespace megatron
