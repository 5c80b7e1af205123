#include "megatron/config/run_settings.h"

#include <unistd.h>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/config_file.h"
#include "megatron/config/data_config.h"
#include "megatron/config/deepspeed_config.h"
#include "megatron/config/environment.h"
#include "megatron/config/known_flags.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/model_families.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"
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

/// Adds the notes of the fields that are given, such as that a flag has no effect without another.
void note_given_fields(const Settings& settings, ParseResult& parsed) {
  for (const Field& field : settings_table().set().fields) {
    if (!parsed.is_set(field.name) || field.is_switch_at_default(&settings)) continue;
    for (const ConditionalNote& note : field.conditional_notes)
      if (note.holds(settings))
        parsed.notes[std::string(note.text)].push_back(parsed.origin(field.name).where);
  }
}

/// Leaves the micro-batch size to a memory budget if none is given.
void choose_micro_batch_size(Settings& settings, const ParseResult& parsed) {
  MemoryConfig& memory = *settings.memory;
  if (!memory.has_budget() || parsed.is_set(Setting(&TrainingConfig::micro_batch_size).name()))
    return;
  memory.chooses_micro_batch_size = true;
  settings.training->micro_batch_size = 1;
}

/// Loads pretrained weights where --load names no checkpoint of the run, as Megatron-LM does.
void choose_pretrained(CheckpointConfig& config) {
  if (config.pretrained_checkpoint.empty() || !config.load.empty()) return;
  config.load = config.pretrained_checkpoint;
  config.finetune = true;
}

/// Takes vocab.txt for the vocabulary of a BERT tokenizer, as Megatron-LM's pretrain_bert.py and
/// pretrain_t5.py do.
void choose_tokenizer_type(RunOptions& options) {
  TokenizerConfig& tokenizer = *options.settings.tokenizer;
  const bool is_masked = options.model == "bert" || options.model == "t5";
  if (is_masked && !tokenizer.has_type_or_model() && !tokenizer.vocab_file.empty())
    tokenizer.tokenizer_type = "BertWordPieceLowerCase";
}

/// Computes the batch size that is not given from the other one and the number of steps, as
/// DeepSpeed does. Sizes of one source that contradict each other are added to `problems`.
void complete_batch_sizes(std::int64_t num_replicas, RunOptions& options, ParseResult& parsed,
                          Problems& problems) {
  TrainingConfig& t = *options.settings.training;
  const std::string micro = Setting(&TrainingConfig::micro_batch_size).name(),
                    global = Setting(&TrainingConfig::global_batch_size).name();
  const bool has_micro = parsed.is_set(micro) && t.micro_batch_size > 0,
             has_global = parsed.is_set(global) && t.global_batch_size > 0;
  if (options.gradient_accumulation_steps.value_or(0) < 1 ||
      (options.settings.memory->has_budget() && !has_micro))
    return;
  const Origin origin = parsed.origin("gradient_accumulation_steps");
  const std::int64_t size = has_micro ? t.micro_batch_size : 1,
                     passes = *options.gradient_accumulation_steps * num_replicas;
  const bool fits =
      t.global_batch_size % passes == 0 && (!has_micro || t.global_batch_size / passes == size);
  if (!has_global && passes <= kMaxSize / size) {
    t.global_batch_size = passes * size;
    parsed.origins[global] = origin;
  } else if (has_global && !has_micro && fits) {
    t.micro_batch_size = t.global_batch_size / passes;
    parsed.origins[micro] = origin;
  } else if (!has_micro || (!fits && parsed.origin(micro).kind == origin.kind &&
                            parsed.origin(global).kind == origin.kind)) {
    problems.add({origin.where + " " + std::to_string(passes / num_replicas),
                  "does not fit " + global + " " + std::to_string(t.global_batch_size) + " on " +
                      std::to_string(num_replicas) + " data-parallel ranks",
                  global + " = " + micro +
                      " x gradient_accumulation_steps x data-parallel ranks: " +
                      "correct one of them, or leave it out"});
  }
}

/// Returns the settings with the default global batch size of this many replicas.
Settings with_global_batch(Settings settings, std::int64_t num_replicas) {
  TrainingConfig& t = *settings.training;
  if (t.global_batch_size == 0 && t.step_batch_size_schedule.empty())
    t.global_batch_size = t.micro_batch_size * num_replicas;
  return settings;
}

/// Returns the data-parallel size; 1 if the degrees of the other axes do not fit the ranks.
std::int64_t num_replicas(const Settings& settings, std::int64_t world_size) {
  const bool fits = check_mesh_sizes(mesh_sizes(*settings.parallel), world_size).empty();
  return fits ? data_parallel_size(settings, world_size) : 1;
}

/// Returns the flag that changes a setting of masked samples.
std::string flag_to_give(const Setting& setting) {
  return setting.is_on_by_default() ? "--bert-no-binary-head" : setting.flag();
}

/// Notes settings of masked samples in a run that has others.
void note_task(const Settings& settings, Problems& problems) {
  if (settings.data->task == FinetuneTask::none) return;
  for (const Setting& setting :
       std::initializer_list<Setting>{&DataConfig::mask_prob, &DataConfig::short_seq_prob,
                                      &TransformerConfig::bert_binary_head})
    if (setting.is_given(settings))
      problems.note(
          flag_to_give(setting),
          "without effect: it is for masked samples, and --task trains on labelled texts");
}

void check_rules(const RunOptions& options, const ParseResult& parsed, std::int64_t world_size,
                 Problems& problems) {
  const Settings& settings = options.settings;
  const std::int64_t replicas = num_replicas(settings, world_size);
  problems.add(validate_run(with_global_batch(settings, replicas), parsed.failed));
  problems.add(check_world(settings, world_size, parsed.failed));
  note_task(settings, problems);
  if (!settings.checkpoint->load.empty()) return;
  Settings resolved = settings;
  resolve(resolved, replicas);
  if (!parsed.failed.contains(Setting(&TransformerConfig::hybrid_layer_pattern).name()))
    problems.add(check_family(options.model, resolved));
  problems.add(validate_model(resolved, parsed.failed));
}

/// Refuses what two stacks cannot do, and samples other than masked sentences.
Problems check_t5(const Settings& settings) {
  Problems problems;
  const TransformerConfig& model = *settings.model;
  for (const Setting& setting : std::initializer_list<Setting>{
           &TransformerConfig::mtp_num_layers, &TransformerConfig::multi_latent_attention,
           &TransformerConfig::group_query_attention, &TransformerConfig::window_size,
           &TransformerConfig::attention_chunk_size, &TransformerConfig::parallel_residual,
           &TransformerConfig::no_rope_freq, &MoeConfig::num_experts, &OptimizerConfig::qk_clip,
           &ParallelConfig::hybrid_context_parallel, &DataConfig::sft, &FimConfig::fim_data,
           &DataConfig::dataloader_inter_document_masking, &DataConfig::document_packing_strategy,
           &DataConfig::reset_attention_mask, &DataConfig::reset_position_ids,
           &DataConfig::eod_mask_loss, &TrainingConfig::train_epochs,
           &LinearAttentionConfig::variant})
    if (setting.is_given(settings))
      problems.add({setting.flag(), "does not go with the encoder and the decoder of t5",
                    "leave it out, or train gpt"});
  if (settings.parallel->context_parallel_size > 1)
    problems.add({"--context-parallel-size",
                  "divides one sequence, and a sample of t5 has two of different lengths",
                  "use --tensor-model-parallel-size with --sequence-parallel"});
  const std::int64_t length = settings.data->decoder_seq_length;
  if (length == 0 && !settings.training->skip_train)
    problems.add({"--decoder-seq-length", "is required",
                  "add --decoder-seq-length N, the tokens of the decoder, such as 128"});
  const std::int64_t positions = model.max_position_embeddings - model.position_offset;
  if (model.position_embedding_type == PositionEmbedding::learned_absolute &&
      model.max_position_embeddings > 0 && length > positions)
    problems.add({"--decoder-seq-length",
                  std::to_string(length) + " is above the " + std::to_string(positions) +
                      " positions of --max-position-embeddings",
                  "lower it"});
  if (settings.parallel->sequence_parallel &&
      length % settings.parallel->tensor_model_parallel_size != 0)
    problems.add({"--decoder-seq-length",
                  std::to_string(length) + " is no multiple of --tensor-model-parallel-size",
                  "change one of them, or leave --sequence-parallel out"});
  if (model.has_relative_bias() && model.attn_logit_softcapping > 0)
    problems.add(
        {"--attn-logit-softcapping", "does not go with relative positions", "leave it out"});
  if (model.position_embedding_type == PositionEmbedding::alibi)
    problems.add({"--position-embedding-type alibi",
                  "gives later positions no distance, and the encoder attends to them",
                  "use relative, rope or learned_absolute"});
  return problems;
}

/// Refuses heads that do not fit --task.
Problems check_task(const Settings& settings) {
  Problems problems;
  const std::int64_t num_classes = settings.model->num_classes;
  const FinetuneTask task = settings.data->task;
  const bool fits = task == FinetuneTask::none ? num_classes == 0
                    : ranks_choices(task)      ? num_classes < 2
                                               : num_classes != 1;
  if (!fits)
    problems.add({"--num-classes " + std::to_string(num_classes),
                  "is not the head that --task trains: 1 ranks choices, and more classify",
                  "leave it out, or choose --task classify or rank"});
  if (ranks_choices(task) && settings.parallel->context_parallel_size > 1)
    problems.add({"--context-parallel-size",
                  "divides one sequence, and the choices of a sample are several",
                  "use --tensor-model-parallel-size with --sequence-parallel"});
  return problems;
}

/// Refuses what a model that reads whole texts cannot do, and samples other than masked sentences
/// and labelled texts.
Problems check_bert(const Settings& settings) {
  Problems problems = check_task(settings);
  const TransformerConfig& model = *settings.model;
  const bool is_finetuned = settings.data->task != FinetuneTask::none;
  for (const Setting& setting : std::initializer_list<Setting>{
           &TransformerConfig::mtp_num_layers, &DataConfig::sft, &FimConfig::fim_data,
           &DataConfig::dataloader_inter_document_masking, &DataConfig::document_packing_strategy,
           &DataConfig::reset_attention_mask, &DataConfig::reset_position_ids,
           &DataConfig::eod_mask_loss, &ParallelConfig::hybrid_context_parallel,
           &LinearAttentionConfig::variant})
    if (setting.is_given(settings))
      problems.add({setting.flag(),
                    "is for models that predict the next token, and bert predicts masked ones",
                    "leave it out"});
  if (model.position_embedding_type == PositionEmbedding::alibi)
    problems.add({"--position-embedding-type alibi",
                  "gives later positions no distance, and bert attends to them",
                  "use learned_absolute or rope"});
  if (settings.training->train_epochs && !is_finetuned)
    problems.add({Setting(&TrainingConfig::train_epochs).flag(),
                  "counts samples, which masked sentences have no number of", "use --train-iters"});
  if (!model.bert_lm_head && !is_finetuned)
    problems.add({"the loaded model", "has no head, and only makes embeddings",
                  "load another, or finetune it with --task"});
  if (!is_finetuned && model.bert_binary_head && model.num_tokentypes && *model.num_tokentypes < 2)
    problems.add({"--num-tokentypes " + std::to_string(*model.num_tokentypes),
                  "cannot tell the two sentences of the binary head apart",
                  "add --bert-no-binary-head, or use 2"});
  return problems;
}

}  // namespace

void resolve_stacks(const std::string& family, const ParseResult& parsed,
                    TransformerConfig& model) {
  if (family == "hybrid" && model.hybrid_layer_pattern.empty() && model.num_layers > 0 &&
      model.num_layers <= kMaxLayers)
    model.hybrid_layer_pattern =
        allocated_pattern(model.num_layers, model.mamba.attention_ratio, model.mamba.mlp_ratio);
  if (family != "t5") return;
  if (model.decoder_num_layers == 0) model.decoder_num_layers = model.num_layers;
  model.num_layers += model.decoder_num_layers;
  if (!parsed.is_set(Setting(&TransformerConfig::add_output_bias).name()))
    model.add_output_bias = !model.untie_embeddings_and_output_weights;
}

Problems check_family(const std::string& family, const Settings& settings) {
  const TransformerConfig& model = *settings.model;
  const bool is_hybrid = family == "hybrid";
  Problems problems;
  if (family == "bert") problems.add(check_bert(settings));
  if (family == "t5") problems.add(check_t5(settings));
  const auto note = [&](const Setting& setting, const std::string& owner) {
    if (setting.is_given(settings))
      problems.note(flag_to_give(setting),
                    "without effect: it belongs to " + owner + ", and this run trains " + family);
  };
  if (family != "bert")
    for (const Setting& setting : std::initializer_list<Setting>{
             &TransformerConfig::bert_binary_head, &TransformerConfig::num_tokentypes,
             &TransformerConfig::num_classes, &DataConfig::keep_padding})
      note(setting, "BERT");
  if (family != "bert" && settings.data->task != FinetuneTask::none)
    problems.add({"--task", "finetunes an encoder, and this run trains " + family, "train bert"});
  if (family != "bert" && family != "t5")
    for (const Setting& setting :
         std::initializer_list<Setting>{&DataConfig::mask_prob, &DataConfig::short_seq_prob})
      note(setting, "BERT and T5");
  if (family != "t5") {
    note(&DataConfig::decoder_seq_length, "T5");
    for (const Setting& setting : std::initializer_list<Setting>{
             &TransformerConfig::decoder_num_layers, &DataConfig::vocab_extra_ids})
      if (setting.is_given(settings))
        problems.add({setting.flag(), "is for t5, and this run trains " + family, "leave it out"});
    if (model.has_relative_bias())
      problems.add({"--position-embedding-type relative", "is for t5",
                    "use learned_absolute or rope to train " + family});
  }
  const std::string& pattern = model.hybrid_layer_pattern;
  const bool is_allocated =
      pattern ==
      allocated_pattern(std::ssize(pattern), model.mamba.attention_ratio, model.mamba.mlp_ratio);
  for (const Setting& ratio :
       std::initializer_list<Setting>{&MambaConfig::attention_ratio, &MambaConfig::mlp_ratio})
    if (!is_hybrid)
      note(ratio, "hybrid models");
    else if (ratio.is_given(settings) && !is_allocated)
      problems.note(ratio.flag(), "without effect: --hybrid-layer-pattern lists the layers");
  if (is_hybrid && pattern.empty())
    problems.add({"hybrid", "has no layers without --hybrid-layer-pattern or --num-layers",
                  "write a symbol for each layer, such as --hybrid-layer-pattern 'M-M*-ME'"});
  if (!is_hybrid && !pattern.empty())
    problems.add({"--hybrid-layer-pattern", "lists the layers of `pretrain hybrid`",
                  "leave it out, or train hybrid instead of " + family});
  return problems;
}

const FieldTable<RunOptions>& run_table() {
  return field_table<RunOptions>([](auto& t) {
    t.about(
        "Trains a model with Megatron-LM's flags. Flags have precedence over the environment "
        "(MEGATRON_NUM_LAYERS=12), and the environment over --config files.");
    t.group("Command");
    add_model_family(t, "type of the model");
    t.field("config", &RunOptions::config,
            "YAML or TOML file of settings; later files have precedence")
        .repeatable()
        .value_name("FILE")
        .alias("yaml-cfg");
    t.field("deepspeed_config", &RunOptions::deepspeed_config,
            "DeepSpeed's JSON file; every other source of settings has precedence over it")
        .value_name("FILE")
        .alias("deepspeed_config");
    t.field("gradient_accumulation_steps", &RunOptions::gradient_accumulation_steps,
            "number of forward passes of a rank in a step, which gives the batch size that is not "
            "given")
        .between(1, kMaxSize);
    t.field("print_config", &RunOptions::print_config,
            "print every setting with its origin and exit");
    t.field("json", &RunOptions::json, "print the settings of --print-config as JSON");
    t.include(&RunOptions::settings, settings_table());
    for (Field& field : known_flag_fields()) t.add_field(std::move(field));
  });
}

RunConfig read_run(std::span<const std::string> args, std::int64_t world_size,
                   const std::vector<std::string>& families) {
  static const FieldIndex own(run_table().set());
  const FieldSet fields =
      families.empty() ? FieldSet() : with_families(run_table().set(), families);
  const FieldIndex other(fields);
  const FieldIndex& index = families.empty() ? own : other;
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
  std::string deepspeed;  // the last source counts
  for (const Assignment& a : all)
    if (a.field->name == "deepspeed_config" && a.values.size() == 1) deepspeed = a.values.front();
  if (!deepspeed.empty()) {
    auto of_file = read_deepspeed_config(index, deepspeed, run.parsed.notes, problems);
    all.insert(all.begin(), of_file.begin(), of_file.end());
  }
  apply_assignments(all, &run.options, run.parsed, problems);
  require_fields(index.fields(), run.parsed, problems);
  if (!run.options.print_config) choose_pretrained(*run.options.settings.checkpoint);
  const bool loads = !run.options.settings.checkpoint->load.empty() && !run.options.print_config;
  choose_tokenizer_type(run.options);
  translate_legacy_flags(run.options.settings, run.parsed, problems, loads);
  Problems of_batch;
  complete_batch_sizes(num_replicas(run.options.settings, world_size), run.options, run.parsed,
                       of_batch);
  if (!run.options.print_config) problems.add(of_batch);
  choose_micro_batch_size(run.options.settings, run.parsed);
  if (!run.options.print_config)
    resolve_stacks(run.options.model, run.parsed, *run.options.settings.model);
  note_given_fields(run.options.settings, run.parsed);
  note_unread_fields(index.fields(), &run.options, run.parsed);
  if (!run.options.print_config) check_rules(run.options, run.parsed, world_size, problems);
  for (const auto& [remark, flags] : problems.notes())
    for (const std::string& flag : flags) {
      std::string place = flag;
      if (const Field* field = index.find(flag.substr(2)).field) {
        const Origin origin = run.parsed.origin(field->name);  // maybe a file or the environment
        if (!origin.where.empty() && !origin.where.starts_with("--")) place = origin.where;
      }
      add_notes({{remark, {place}}}, run.parsed.notes);
    }
  problems.throw_if_any();
  return run;
}

}  // namespace megatron
