#include "megatron/training/saving/resume_differences.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/blend_schedule.h"
#include "megatron/config/data_config.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

constexpr std::string_view kOrder =
    "the consumed samples were different ones: some samples repeat, some are never seen";
constexpr std::string_view kSteps = "each step takes different samples";
constexpr std::string_view kTokens = "the same text becomes different tokens";
constexpr std::string_view kSamples = "the same documents become different samples";
constexpr std::string_view kArithmetic = "steps use another precision from now on";

constexpr std::string_view kBreakingMark = "  ! ", kPlainMark = "    ";

/// Settings whose change breaks continuity with the saved run.
constexpr std::pair<std::string_view, std::string_view> kBreaking[] = {
    {"seed", "the order of the data and dropout differ from now on"},
    {"data_path", kOrder},
    {"train_data_path", kOrder},
    {"data_args_path", kOrder},
    {"per_split_data_args_path", kOrder},
    {"blend_schedule", kOrder},
    {"mock_data", kOrder},
    {"split",
     "documents move between training, validation and test: validation may contain "
     "training data"},
    {"seq_length",
     "samples are cut differently: the number of consumed samples no longer tells which tokens "
     "were "
     "seen"},
    {"dataloader_type", kOrder},
    {"global_batch_size", kSteps},
    {"rampup_batch_size", kSteps},
    {"step_batch_size_schedule", kSteps},
    {"decrease_batch_size_if_needed", kSteps},
    {"reset_attention_mask", "attention sees different tokens"},
    {"dataloader_inter_document_masking", "attention sees different tokens"},
    {"document_packing_strategy", kSamples},
    {"reset_position_ids", "positions are counted differently"},
    {"eod_mask_loss", "the loss counts different tokens"},
    {"fim_data", kSamples},
    {"fim_rate", kSamples},
    {"fim_spm_rate", kSamples},
    {"fim_split_sample", kSamples},
    {"fim_fragment_rate", kSamples},
    {"fim_no_prefix", kSamples},
    {"sft", kSamples},
    {"sft_tokenizer_prompt_format", kSamples},
    {"chat_template", kSamples},
    {"tokenizer_metadata", "its chat template makes samples, its library chooses the tokenizer"},
    {"sft_packing_strategy", kSamples},
    {"calculate_per_token_loss", "the loss is averaged differently"},
    {"tokenizer_prompt_format", kTokens},
    {"image_tag_type", kTokens},
    {"force_system_message", kTokens},
    {"tokenizer_type", kTokens},
    {"tokenizer_model", kTokens},
    {"vocab_file", kTokens},
    {"merge_file", kTokens},
    {"tokenizer_hf_no_include_special_tokens", kTokens},
    {"tokenizer_special_tokens", kTokens},
    {"tiktoken_pattern", kTokens},
    {"tiktoken_num_special_tokens", kTokens},
    {"null_tokenizer_eod_id", "documents end at another id"},
    {"null_tokenizer_pad_id", "another id fills samples"},
    {"optimizer", "its state belongs to another update rule"},
    {"bf16", kArithmetic},
    {"fp16", kArithmetic},
};

/// Settings that a new phase of the data may change: its data set begins at its first sample.
constexpr std::string_view kOfOnePhase[] = {"data_path",
                                            "train_data_path",
                                            "data_args_path",
                                            "per_split_data_args_path",
                                            "mock_data",
                                            "seq_length",
                                            "dataloader_type",
                                            "reset_attention_mask",
                                            "dataloader_inter_document_masking",
                                            "document_packing_strategy",
                                            "reset_position_ids",
                                            "eod_mask_loss",
                                            "fim_data",
                                            "fim_rate",
                                            "fim_spm_rate",
                                            "fim_split_sample",
                                            "fim_fragment_rate",
                                            "fim_no_prefix",
                                            "sft",
                                            "sft_tokenizer_prompt_format",
                                            "chat_template",
                                            "sft_packing_strategy"};

constexpr std::pair<std::string_view, std::string_view> kNotable[] = {
    {"train_iters",
     "schedules that end with the run stretch; data sets are shuffled anew if they now need "
     "another "
     "number of epochs"},
    {"train_samples",
     "schedules that end with the run stretch; data sets are shuffled anew if they now need "
     "another "
     "number of epochs"},
    {"train_epochs",
     "schedules that end with the run stretch; data sets are shuffled anew if they now need "
     "another "
     "number of epochs"},
    {"micro_batch_size", "the same samples, summed in another order"},
    {"hybrid_context_parallel", "the same samples, summed in another order"},
    {"max_seqlen_per_dp_cp_rank", "the same samples, summed in another order"},
    {"clip_grad", "applies from now on"},
    {"hidden_dropout", "applies from now on"},
    {"attention_dropout", "applies from now on"},
    {"adam_beta1", "applies from now on"},
    {"adam_beta2", "applies from now on"},
    {"adam_eps", "applies from now on"},
    {"sgd_momentum", "applies from now on"},
    {"lr_warmup_init", "applies from now on: checkpoints do not store it"},
    {"lr_wsd_decay_style", "applies from now on: checkpoints do not store it"},
    {"lr_wsd_decay_iters", "applies from now on: checkpoints do not store it"},
    {"lr_wsd_decay_samples", "applies from now on: checkpoints do not store it"},
    {"iterations_to_skip", "applies from now on"},
};

/// Flags that define the schedule, whose state the checkpoint stores.
constexpr std::string_view kSchedule[] = {"lr",
                                          "min_lr",
                                          "lr_decay_style",
                                          "lr_decay_iters",
                                          "lr_decay_samples",
                                          "lr_warmup_fraction",
                                          "lr_warmup_iters",
                                          "lr_warmup_samples",
                                          "weight_decay",
                                          "start_weight_decay",
                                          "end_weight_decay",
                                          "weight_decay_incr_style"};

/// Paths and files that may differ without consequences.
constexpr std::string_view kIgnored[] = {"load", "save", "ckpt_step", "activation_plan",
                                         "planned_world_size"};

std::string_view find_consequence(
    std::span<const std::pair<std::string_view, std::string_view>> table, std::string_view name) {
  const auto found =
      std::ranges::find(table, name, &std::pair<std::string_view, std::string_view>::first);
  return found == table.end() ? std::string_view() : found->second;
}

std::string schedule_consequence(const SchedulerConfig& scheduler, const std::string& there,
                                 const std::string& here) {
  if (scheduler.override_opt_param_scheduler)
    return here + " holds, by --override-opt-param-scheduler";
  if (scheduler.use_checkpoint_opt_param_scheduler)
    return there + " holds, by --use-checkpoint-opt-param-scheduler";
  return "add --override-opt-param-scheduler for " + here +
         ", or --use-checkpoint-opt-param-scheduler for " + there;
}

/// How this run continues the data of the saved one.
struct Continuation {
  bool begins_phase = false;    ///< a phase of the data begins here
  bool moves_phase = false;     ///< the phase that goes on has other bounds than in the saved run
  bool keeps_mixtures = false;  ///< the steps of --blend-schedule up to here are the saved run's
};

/// What follows from a setting that differs from the checkpoint's.
struct Consequence {
  std::string text;
  bool is_breaking = false;
};

Consequence consequence_of(const std::string& name, const Settings& settings,
                           const std::string& there, const std::string& here,
                           const Continuation& continuation) {
  if (std::ranges::count(kSchedule, std::string_view(name)) > 0)
    return {schedule_consequence(*settings.scheduler, there, here)};
  if (continuation.begins_phase && std::ranges::count(kOfOnePhase, std::string_view(name)) > 0)
    return {"holds from here on, where a phase of the data begins"};
  if (name == "blend_schedule" && continuation.keeps_mixtures)
    return {
        "the mixtures up to here are the same; data sets are shuffled anew if they now need "
        "another "
        "number of epochs"};
  if (name == "phase_transition_iterations" && continuation.moves_phase)
    return {std::string(kOrder), true};
  const std::string_view breaking = find_consequence(kBreaking, name);
  return {std::string(breaking.empty() ? find_consequence(kNotable, name) : breaking),
          !breaking.empty()};
}

/// Sets the fields of `object` from the dump. A field that is missing, unset or unreadable there
/// keeps its default.
void read_saved(const Json& saved, const FieldSet& fields, void* object) {
  for (const Field& field : fields.fields) {
    const auto found = saved.find(field.name);
    if (found == saved.end() || !found->is_string() || is_none(found->get<std::string>())) continue;
    try {
      assign(field, object, std::vector<std::string>{found->get<std::string>()});
    } catch (const FieldError&) {
      continue;
    }
  }
}

/// Returns the steps of --blend-schedule that begin before `iteration`; nullopt if the schedule
/// cannot be read.
std::optional<std::vector<BlendStep>> steps_before(const DataConfig& data, std::int64_t iteration) {
  if (data.blend_schedule.empty()) return std::vector<BlendStep>();
  try {
    std::vector<BlendStep> steps = parse_blend_schedule(data.blend_schedule);
    std::erase_if(steps, [&](const BlendStep& step) { return step.iteration >= iteration; });
    return steps;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// Returns how `settings` continue the data of the saved run after `iteration`.
Continuation continuation_of(const Json& saved, const Settings& settings, std::int64_t iteration) {
  TrainingConfig there;
  read_saved(saved, training_table().set(), &there);
  DataConfig data;
  read_saved(saved, data_table().set(), &data);
  const auto mixtures = steps_before(data, iteration);
  const DataPhase then = data_phase(there, iteration),
                  now = data_phase(*settings.training, iteration);
  // No sample of a phase that begins here is consumed.
  const bool both_begin = then.begin == iteration && now.begin == iteration;
  return {.begins_phase = is_phase_transition(*settings.training, iteration),
          .moves_phase = !both_begin && (then.begin != now.begin || then.end != now.end),
          .keeps_mixtures = mixtures && mixtures == steps_before(*settings.data, iteration)};
}

/// Sets the length of the saved run `there` to this run's, in the unit of the saved run.
void copy_run_length(TrainingConfig& there, const TrainingConfig& here) {
  there.train_iters = here.train_iters;
  if (there.train_samples > 0)
    there.train_samples = here.train_samples > 0
                              ? here.train_samples
                              : NumMicrobatchesCalculator(here).samples_after(here.train_iters);
}

}  // namespace

void read_saved_settings(const Json& saved, Settings& settings) {
  read_saved(saved, settings_table().set(), &settings);
}

void check_phase_batch_size(const Json& saved, const TrainingConfig& training) {
  if (training.phase_transition_iterations.empty()) return;
  TrainingConfig there;
  read_saved(saved, training_table().set(), &there);
  if (there.global_batch_size == 0 || there.global_batch_size == training.global_batch_size) return;
  const std::string size = std::to_string(there.global_batch_size);
  throw UserError({"--global-batch-size " + std::to_string(training.global_batch_size),
                   "the checkpoint was saved with " + size +
                       ", and with --phase-transition-iterations all phases of the data have one "
                       "batch size",
                   "use --global-batch-size " + size});
}

std::string settings_differences(const Json& saved, const Settings& settings,
                                 std::int64_t iteration) {
  const Continuation continuation = continuation_of(saved, settings, iteration);
  std::string lines;
  for (const Field& field : settings_table().set().fields) {
    const auto found = saved.find(field.name);
    if (found == saved.end() || !found->is_string() ||
        std::ranges::count(kIgnored, std::string_view(field.name)) > 0)
      continue;
    const std::string there = found->get<std::string>(), here = join_values(field.get(&settings));
    if (there == here) continue;
    const Consequence consequence = consequence_of(field.name, settings, there, here, continuation);
    lines += std::string(consequence.is_breaking ? kBreakingMark : kPlainMark) + field.flag() +
             ": " + there + " in the checkpoint, " + here + " now" +
             (consequence.text.empty() ? "" : ": " + consequence.text) + "\n";
  }
  return lines;
}

std::string breaking_differences(const std::string& differences) {
  std::istringstream lines(differences);
  std::string breaking;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kBreakingMark)) breaking += (breaking.empty() ? "" : "\n") + line;
  }
  return breaking;
}

Json saved_schedule_state(const Json& saved, const Settings& settings, std::int64_t num_steps) {
  Settings there;
  read_saved(saved, scheduler_table().set(), &*there.scheduler);
  read_saved(saved, training_table().set(), &*there.training);
  read_saved(saved, optimizer_table().set(), &*there.optimizer);
  copy_run_length(*there.training, *settings.training);
  OptimizerParamScheduler scheduler(
      make_param_schedule(*there.scheduler, *there.training, there.optimizer->weight_decay));
  scheduler.set_num_steps(num_steps);
  return scheduler.state();
}

}  // namespace megatron
