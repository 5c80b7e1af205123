#include "megatron/config/inference_options.h"

#include <type_traits>

#include "megatron/base/error.h"
#include "megatron/config/known_flags.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/run_flags.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

/// Returns the parallel flags that have an effect without training.
const FieldTable<ParallelConfig>& parallel_fields() {
  using Config = ParallelConfig;
  return field_table<Config>([](auto& t) {
    for (const Setting& setting : std::initializer_list<Setting>{
             &Config::tensor_model_parallel_size, &Config::pipeline_model_parallel_size,
             &Config::use_tp_pp_dp_mapping, &Config::num_virtual_stages_per_pipeline_rank,
             &Config::decoder_first_pipeline_num_layers, &Config::decoder_last_pipeline_num_layers,
             &Config::pipeline_model_parallel_layout, &Config::expert_model_parallel_size,
             &Config::expert_tensor_parallel_size, &Config::device, &Config::cpu_transport,
             &Config::distributed_timeout_minutes})
      t.add_field(*parallel_table().set().find_name(setting.name()));
  });
}

template <class Options>
void declare_model(FieldTable<Options>& table) {
  using Text = std::string Options::*;
  using Number = std::optional<std::int64_t> Options::*;
  table.group("Model");
  table
      .field("load", Text{&Options::load},
             "folder of checkpoints, or Hugging Face folder, to load from")
      .required()
      .value_name("DIR");
  table.field("ckpt_step", Number{&Options::ckpt_step}, "iteration to load; none: the latest")
      .at_least(0);
  using Flag = bool Options::*;
  table.field("bf16", Flag{&Options::bf16},
              "compute in bfloat16; default: the type of the weights");
  table.field("fp16", Flag{&Options::fp16}, "compute in float16");
  table.field("fp32", Flag{&Options::fp32}, "compute in float32");
  FieldBuilder cache =
      table
          .field(
              "cache_mla_latents", Flag{&Options::cache_mla_latents},
              "cache the latents of multi-latent attention in place of its keys and values: less "
              "memory, and less to read for each token")
          .alias("cache-kv-in-compressed-form");
  if (std::is_same_v<Options, ScoreOptions>)
    cache.note("without effect: score computes whole sequences and caches nothing");
}

template <class Options>
void declare_parallel(FieldTable<Options>& table) {
  table.include(static_cast<ParallelConfig Options::*>(&Options::parallel), parallel_fields());
}

/// The flags of Megatron-LM's text-generation scripts beyond those of a training run.
constexpr KnownFlags kGenerationFlags[] = {
    {KnownFlags::Treatment::accepted, "without effect: prompts are processed one after the other",
     "",
     "num-tokens-to-prompt+=* incoming-requests-per-step=* incoming-requests-per-sec=* "
     "incoming-requests-duration=* output-every-n-results=* "
     "no-record-throughput drain-between-batches batch-boundaries=* suspend-resume-interval=* "
     "suspend-timeout=* "
     "coordinator-schedule-output-path=* moe-routing-trace-max-inference-steps=* use-coordinator "
     "async-mode use-flashinfer-fused-rope"},
    {KnownFlags::Treatment::accepted,
     "without effect: loading is always strict, every weight of the model must be in the "
     "checkpoint",
     "", "inference-ckpt-non-strict"},
    {KnownFlags::Treatment::refused, "is not in this version: models are GPT", "leave it out",
     "model-provider=gpt"},
    {KnownFlags::Treatment::refused, "is not in this version",
     "use --json, and send standard output to the file", "output-path=- output-request-events"},
    {KnownFlags::Treatment::refused, "is not in this version",
     "end texts with --max-new-tokens or --termination-id", "num-tokens-from-file"},
    {KnownFlags::Treatment::refused, "measures Megatron-LM's inference engine", "leave it out",
     "inference-repeat-n=1 throughput-check-only"},
};

/// Accepts the flags of the run that trained the model, and of Megatron-LM's inference scripts.
template <class Options>
void declare_run_flags(FieldTable<Options>& table, const std::string& command) {
  for (const KnownFlags& flags : kGenerationFlags) {
    for (Field& field : known_flag_fields(flags)) table.add_field(std::move(field));
  }
  include_run_flags(table, static_cast<Settings Options::*>(&Options::run),
                    {.architecture = "comes from the checkpoint, with which it must agree",
                     .others = "without effect: " + command + " trains nothing",
                     .runs_inference = true});
}

/// Reads the flags of `table`, those of a training run included.
template <class Options>
Options read_options(const FieldTable<Options>& table, std::span<const std::string> args,
                     std::string_view command) {
  Options options;
  ParseResult parsed = parse_command_line(table, args, options, command);
  Problems problems;
  translate_legacy_flags(options.run, parsed, problems, /*loads_model=*/true);
  problems.throw_if_any();
  options.parsed = std::move(parsed);
  return options;
}

void check_model_options(ModelOptions& options, std::int64_t world_size) {
  Settings settings;
  settings.parallel = options.parallel;
  Problems problems = check_mesh_sizes(mesh_sizes(options.parallel), world_size);
  problems.add(evaluate(pipeline_rules(), settings, {}));
  if (options.bf16 + options.fp16 + options.fp32 > 1) {
    const std::string flags = std::string(options.bf16 ? "--bf16 " : "") +
                              (options.fp16 ? "--fp16 " : "") + (options.fp32 ? "--fp32 " : "");
    problems.add({flags + "together", "a model computes in one type",
                  "give at most one of them; without any, the type of the checkpoint is used"});
  }
  add_notes(problems.notes(), options.parsed.notes);
  problems.throw_if_any();
}

}  // namespace

const FieldTable<GenerateOptions>& generate_table() {
  using Options = GenerateOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Continues each prompt until the end of the document or --max-new-tokens. Without "
        "tokenizer flags, it uses the tokenizer of the checkpoint. Under `megatron launch` the "
        "model is sharded over the ranks, and the prompts are distributed over its replicas; the "
        "texts are printed in the order of the prompts.");
    declare_model(t);
    t.group("Prompts");
    t.field("prompt", &Options::prompt, "text to continue").repeatable().value_name("TEXT");
    t.field("prompts", &Options::prompts, "texts to continue, as in Megatron-LM's scripts")
        .value_name("TEXT");
    t.field("prompt_file", &Options::prompt_file,
            "file with one prompt per line; in a .jsonl file, the field \"text\" of each line")
        .value_name("FILE");
    t.field("prompt_file_num_truncate", &Options::prompt_file_num_truncate,
            "number of prompts to read from the file; none: all")
        .at_least(1);
    t.include(&Options::sampling, sampling_table());
    t.group("Sampling");
    t.field("stop_words", &Options::stop_words,
            "end a text before any of these strings, as in Megatron-LM's scripts")
        .value_name("TEXT");
    t.include(&Options::speculative, speculative_table());
    t.group("Output");
    t.field("skip_prompt_log_probs", &Options::skip_prompt_log_probs,
            "leave prompt_logprobs out with --return-log-probs");
    t.field(
        "json", &Options::json,
        "print one JSON object per prompt with prompt, prompt_ids, text, ids and "
        "finish_reason; text and ids contain only what was generated. With --n above 1 they are "
        "those of the first text, and choices has all");
    t.include(&Options::tokenizer, tokenizer_table());
    declare_parallel(t);
    declare_run_flags(t, "generate");
  });
}

const FieldTable<ScoreOptions>& score_table() {
  return field_table<ScoreOptions>([](auto& t) {
    t.about(
        "Reads {\"ids\": [...]} from each line and prints {\"logprobs\": [...], \"loss\": x}: the "
        "log-probability of each id given the ids before it, and their negative mean. For a single "
        "id there is no log-probability, and the loss is null. Under `megatron launch`, where "
        "standard input is empty, --input is required; the model is sharded over the ranks, and "
        "the lines are distributed over its replicas.");
    declare_model(t);
    t.group("Input");
    t.field("input", &ScoreOptions::input, "file to read lines from; none: standard input")
        .value_name("FILE");
    declare_parallel(t);
    declare_run_flags(t, "score");
  });
}

GenerateOptions read_generate_options(std::span<const std::string> args, std::int64_t world_size) {
  GenerateOptions options = read_options(generate_table(), args, "generate");
  options.prompt.insert(options.prompt.end(), options.prompts.begin(), options.prompts.end());
  SamplingParams& sampling = options.sampling;
  sampling.stop.insert(sampling.stop.end(), options.stop_words.begin(), options.stop_words.end());
  sampling.prompt_logprobs |= sampling.return_log_probs && !options.skip_prompt_log_probs;
  check_sampling_options(sampling);
  check_speculative_options(options.speculative);
  const auto is_idle = [&](std::initializer_list<const char*> names, const char* why) {
    for (const char* name : names)
      if (options.parsed.is_set(name))
        add_notes({{why, {options.parsed.origin(name).where}}}, options.parsed.notes);
  };
  if (sampling.num_beams > 1)
    is_idle(
        {"temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "num_speculative_tokens"},
        "without effect: beam search (--num-beams) draws no tokens");
  else
    is_idle({"length_penalty"}, "without effect: it is for beam search (--num-beams)");
  check_model_options(options, world_size);
  if (!options.json && (sampling.reports_logprobs() || sampling.prompt_logprobs))
    throw UserError({"--logprobs, --prompt-logprobs and --return-log-probs",
                     "log-probabilities are only in the JSON output", "add --json"});
  if (options.prompt.empty() && options.prompt_file.empty()) {
    throw UserError(
        {"no prompt", "", "give --prompt TEXT (one or more times) or --prompt-file FILE"});
  }
  return options;
}

ScoreOptions read_score_options(std::span<const std::string> args, std::int64_t world_size) {
  ScoreOptions options = read_options(score_table(), args, "score");
  options.cache_mla_latents = false;
  check_model_options(options, world_size);
  return options;
}

}  // namespace megatron
