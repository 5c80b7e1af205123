#include "megatron/config/run_settings.h"

#include <unistd.h>

#include <array>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/config_file.h"
#include "megatron/config/environment.h"
#include "megatron/config/known_flags.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/model_families.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_rules.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"
#include "megatron/config/world_rules.h"

namespace megatron {
namespace {

void append(std::vector<Assignment>& all, std::vector<Assignment> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// Returns the files of --config or, if it is not given, of MEGATRON_CONFIG.
std::vector<std::string> config_files(std::span<const Assignment> environment,
                                      std::span<const Assignment> flags) {
  std::vector<std::string> from_environment, from_flags;
  for (const Assignment& a : environment) {
    if (a.field->name == "config") from_environment = a.values;
  }
  for (const Assignment& a : flags) {
    if (a.field->name == "config")
      from_flags.insert(from_flags.end(), a.values.begin(), a.values.end());
  }
  return from_flags.empty() ? from_environment : from_flags;
}

/// A file cannot name further files: their precedence would not be clear.
void refuse_nested_config(std::span<const Assignment> of_file, Problems& problems) {
  for (const Assignment& a : of_file) {
    if (a.field->name == "config")
      problems.add({a.origin.where, "does not work inside a configuration file",
                    "give every file on the command line: --config FILE1 FILE2"});
  }
}

std::string flag_of(const std::string& name) {
  const Field* field = settings_table().set().find_name(name);
  return field->flag();
}

/// Adds notes about flags of the dynamic loss scale if the loss scale is not dynamic.
void add_loss_scale_notes(const TrainingConfig& training, ParseResult& parsed) {
  if (training.fp16 && training.loss_scale.loss_scale.value_or(0) == 0) return;
  for (const char* name :
       {"initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis"}) {
    if (parsed.is_set(name))
      parsed.notes["without effect: only --fp16 without --loss-scale has a dynamic loss scale"]
          .push_back(parsed.origin(name).where);
  }
}

/// Adds notes about pipeline flags that Megatron-LM accepts without a pipeline.
void add_pipeline_notes(const Settings& settings, ParseResult& parsed) {
  for (const char* name : {"account_for_embedding_in_pipeline_split",
                           "account_for_loss_in_pipeline_split", "overlap_p2p_communication"}) {
    if (parsed.is_set(name) && settings.parallel->pipeline_model_parallel_size == 1)
      parsed.notes["without effect: --pipeline-model-parallel-size is 1"].push_back(
          parsed.origin(name).where);
  }
  const char* partial = "num_microbatches_with_partial_activation_checkpoints";
  const RecomputeConfig& recompute = settings.memory->recompute;
  if (parsed.is_set(partial) && settings.parallel->pipeline_model_parallel_size == 1 &&
      recompute.num_microbatches_with_partial_activation_checkpoints.value_or(0) > 0)
    parsed.notes["without effect: one microbatch is in flight without a pipeline"].push_back(
        parsed.origin(partial).where);
  if (parsed.is_set("microbatch_group_size_per_virtual_pipeline_stage") &&
      !has_microbatch_groups(settings))
    parsed.notes["without effect: the schedule has one chunk per rank, or an order of its own"]
        .push_back(flag_of("microbatch_group_size_per_virtual_pipeline_stage"));
}

/// Adds notes about flags of tensor parallelism without tensor parallelism. resolve() turns them
/// off, as Megatron-LM does.
void add_tensor_parallel_notes(const Settings& settings, ParseResult& parsed) {
  if (settings.parallel->tensor_model_parallel_size != 1) return;
  for (const char* name : {"sequence_parallel", "tp_comm_overlap"}) {
    if (parsed.is_set(name))
      parsed.notes["is turned off: --tensor-model-parallel-size is 1"].push_back(
          parsed.origin(name).where);
  }
}

/// Adds notes about flags of experts that have no effect without others.
void add_expert_notes(const MoeConfig& moe, ParseResult& parsed) {
  const auto add = [&](const std::string& name, const char* note) {
    if (parsed.is_set(name)) parsed.notes[note].push_back(parsed.origin(name).where);
  };
  if (moe.num_experts == 0) {
    for (const Field& field : moe_table().set().fields) {
      if (is_harmless_without_experts(field.name))
        add(field.name, "without effect: there is no --num-experts");
    }
    return;
  }
  if (!moe.router_group_topk)
    add("moe_router_num_groups", "without effect: there is no --moe-router-group-topk");
  if (!moe.router_enable_expert_bias)
    add("moe_router_bias_update_rate",
        "without effect: there is no --moe-router-enable-expert-bias");
  if (!moe.expert_capacity_factor)
    add("moe_token_drop_policy", "without effect: there is no --moe-expert-capacity-factor");
  if (moe.router_load_balancing_type == std::vector{LoadBalancing::none})
    add("moe_aux_loss_coeff", "without effect: --moe-router-load-balancing-type is none");
}

void add_notes(const Settings& settings, ParseResult& parsed) {
  add_loss_scale_notes(*settings.training, parsed);
  add_pipeline_notes(settings, parsed);
  add_tensor_parallel_notes(settings, parsed);
  if (settings.checkpoint->load.empty()) add_expert_notes(settings.model->moe, parsed);
  if (parsed.is_set("save_interval") && settings.checkpoint->save.empty())
    parsed.notes["without effect: there is no --save"].push_back("--save-interval");
  const bool evaluates_only = settings.training->skip_train;
  for (const char* name : {"save", "tensorboard_dir", "trace"}) {
    if (evaluates_only && parsed.is_set(name))
      parsed.notes["without effect: --skip-train writes nothing"].push_back(flag_of(name));
  }
  for (const char* name :
       {"save_retain_interval", "non_persistent_save_interval", "log_progress"}) {
    if (settings.checkpoint->save.empty() && parsed.is_set(name))
      parsed.notes["without effect: there is no --save"].push_back(flag_of(name));
  }
  if (parsed.is_set("ddp_grad_compression_rank") &&
      settings.parallel->ddp_grad_compression != "low-rank")
    parsed.notes["without effect: there is no --ddp-grad-compression low-rank"].push_back(
        "--ddp-grad-compression-rank");
  if (settings.training->start_eval_at_iter && !settings.training->eval_interval)
    parsed.notes["without effect: there is no --eval-interval"].push_back("--start-eval-at-iter");
  if (parsed.is_set("num_query_groups") && !settings.model->group_query_attention &&
      settings.checkpoint->load.empty()) {
    parsed.notes["without effect: there is no --group-query-attention"].push_back(
        "--num-query-groups");
  }
}

/// Leaves the micro-batch size to a memory budget if none is given.
void choose_micro_batch_size(Settings& settings, const ParseResult& parsed) {
  MemoryConfig& memory = *settings.memory;
  if (!memory.has_budget() || parsed.is_set("micro_batch_size")) return;
  memory.chooses_micro_batch_size = true;
  settings.training->micro_batch_size = 1;
}

/// Returns the settings with the default global batch size of this many replicas.
Settings with_global_batch(Settings settings, std::int64_t num_replicas) {
  TrainingConfig& t = *settings.training;
  if (t.global_batch_size == 0 && t.step_batch_size_schedule.empty())
    t.global_batch_size = t.micro_batch_size * num_replicas;
  return settings;
}

void check_rules(const Settings& settings, const ParseResult& parsed, std::int64_t world_size,
                 Problems& problems) {
  const bool fits = check_mesh_sizes(mesh_sizes(*settings.parallel), world_size).empty();
  const std::int64_t num_replicas = fits ? data_parallel_size(settings, world_size) : 1;
  problems.add(validate_run(with_global_batch(settings, num_replicas), parsed.failed));
  problems.add(check_world(settings, world_size, parsed.failed));
  if (!settings.checkpoint->load.empty()) return;
  Settings resolved = settings;
  resolve(resolved, num_replicas);
  problems.add(validate_model(resolved, parsed.failed));
}

}  // namespace

const FieldTable<RunOptions>& run_table() {
  static const FieldTable<RunOptions> table = [] {
    FieldTable<RunOptions> t;
    t.about(
        "Trains a model with Megatron-LM's flags. Flags have precedence over the environment "
        "(MEGATRON_NUM_LAYERS=12), and the environment over --config files.");
    t.group("Command");
    t.field("model", &RunOptions::model, "type of the model")
        .positional()
        .choices(model_family_choices());
    t.field("config", &RunOptions::config,
            "YAML or TOML file of settings; later files have precedence")
        .repeatable()
        .value_name("FILE");
    t.field("print_config", &RunOptions::print_config,
            "print every setting with its origin and exit");
    t.field("json", &RunOptions::json, "print the settings of --print-config as JSON");
    t.include(&RunOptions::settings, settings_table());
    for (Field& field : known_flag_fields()) t.add_field(std::move(field));
    return t;
  }();
  return table;
}

RunConfig read_run(std::span<const std::string> args, std::int64_t world_size) {
  static const FieldIndex index(run_table().set());
  Problems problems;
  RunConfig run;
  const auto flags = read_flags(index, args, "pretrain", problems);
  auto environment = read_environment(index, ::environ, run.parsed.notes, problems);
  std::vector<Assignment> all;
  for (const std::string& path : config_files(environment, flags)) {
    std::vector<Assignment> of_file = read_config_file(index, path, problems);
    refuse_nested_config(of_file, problems);
    append(all, std::move(of_file));
  }
  append(all, std::move(environment));
  append(all, flags);
  apply_assignments(all, &run.options, run.parsed, problems);
  require_fields(index.fields(), run.parsed, problems);
  translate_legacy_flags(run.options.settings, run.parsed, problems);
  choose_micro_batch_size(run.options.settings, run.parsed);
  add_notes(run.options.settings, run.parsed);
  if (!run.options.print_config)
    check_rules(run.options.settings, run.parsed, world_size, problems);
  problems.throw_if_any();
  return run;
}

}  // namespace megatron
