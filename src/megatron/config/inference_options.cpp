#include "megatron/config/inference_options.h"

#include <algorithm>
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
             &Config::context_parallel_size, &Config::use_tp_pp_dp_mapping,
             &Config::num_virtual_stages_per_pipeline_rank,
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
    cache.note("without effect: score caches keys and values, not latents");
  if (std::is_same_v<Options, FillMaskOptions>)
    cache.note("without effect: fill-mask caches nothing");
  if (std::is_same_v<Options, EvaluateOptions>)
    cache.note("without effect: evaluate caches keys and values, not latents");
}

template <class Options>
void declare_parallel(FieldTable<Options>& table) {
  table.include(static_cast<ParallelConfig Options::*>(&Options::parallel), parallel_fields());
}

template <class Options>
void declare_engine(FieldTable<Options>& table) {
  table.include(static_cast<EngineSettings Options::*>(&Options::engine), engine_table());
  declare_parallel(table);
}

/// The flags of Megatron-LM's text-generation scripts beyond those of a training run.
constexpr KnownFlags kGenerationFlags[] = {
    {KnownFlags::Treatment::accepted, "without effect: all prompts are there when it starts", "",
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
    {KnownFlags::Treatment::refused, "is not in this version", "leave it out",
     "model-provider=gpt"},
    {KnownFlags::Treatment::refused, "is not in this version",
     "use --json, and send standard output to the file", "output-path=- output-request-events"},
    {KnownFlags::Treatment::refused, "is not in this version",
     "end texts with --max-new-tokens or --termination-id", "num-tokens-from-file"},
    {KnownFlags::Treatment::refused, "measures Megatron-LM's inference engine", "leave it out",
     "inference-repeat-n=1 throughput-check-only"},
};

/// Flags of other servers that change nothing here.
constexpr KnownFlags kServerFlags{
    KnownFlags::Treatment::accepted, "without effect: there is one way here", "",
    "uvicorn-log-level=* disable-log-stats enable-auto-tool-choice enforce-eager "
    "disable-frontend-multiprocessing enable-log-requests"};

/// Accepts the flags of the run that trained the model, and of Megatron-LM's inference scripts.
template <class Options>
void declare_run_flags(FieldTable<Options>& table, const std::string& command) {
  for (const KnownFlags& flags : kGenerationFlags) {
    for (Field& field : known_flag_fields(flags)) table.add_field(std::move(field));
  }
  include_run_flags(table, static_cast<Settings Options::*>(&Options::run),
                    {.architecture = "comes from the checkpoint, with which it must agree",
                     .others = "without effect: " + command + " trains nothing"});
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
    declare_engine(t);
    declare_run_flags(t, "generate");
  });
}

const FieldTable<ScoreOptions>& score_table() {
  return field_table<ScoreOptions>([](auto& t) {
    t.about(
        "Reads {\"ids\": [...]} from each line and prints {\"logprobs\": [...], \"loss\": x}: the "
        "log-probability of each id given the ids before it, and their negative mean. For a single "
        "id there is no log-probability, and the loss is null. Of a model with an encoder and a "
        "decoder the ids are the decoder's, and \"encoder_ids\" the encoder's. Under `megatron "
        "launch`, where standard input is empty, --input is required; the model is sharded over "
        "the ranks, and the lines are distributed over its replicas.");
    declare_model(t);
    t.group("Input");
    t.field("input", &ScoreOptions::input, "file to read lines from; none: standard input")
        .value_name("FILE");
    declare_parallel(t);
    declare_run_flags(t, "score");
  });
}

const FieldTable<FillMaskOptions>& fill_mask_table() {
  using Options = FillMaskOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Prints the most likely tokens in place of each mask of a text, which is written as the "
        "tokenizer writes it: [MASK] for BERT, <mask> for RoBERTa. The model must be an encoder. "
        "Without tokenizer flags, it uses the tokenizer of the checkpoint. Under `megatron launch` "
        "the model is sharded over the ranks.");
    declare_model(t);
    t.group("Texts");
    t.field("text", &Options::text, "texts with masks").positional().required().value_name("TEXT");
    t.field("top_k", &Options::top_k, "number of tokens to print for each mask").at_least(1);
    t.field("json", &Options::json,
            "print one JSON object per text with text, ids and masks, of which each has its "
            "position and tokens with id, token and probability");
    t.include(&Options::tokenizer, tokenizer_table());
    declare_parallel(t);
    declare_run_flags(t, "fill-mask");
  });
}

const FieldTable<BatchOptions>& batch_table() {
  using Options = BatchOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Answers the requests of a file in the form of OpenAI's batches: JSON lines with "
        "custom_id, method, url (/v1/completions or /v1/chat/completions) and body. All of them "
        "share passes through the model. A request that is wrong gets an answer that says why. "
        "Without tokenizer flags, it uses the tokenizer of the checkpoint. Under `megatron launch` "
        "the model is sharded over "
        "the ranks, and the requests are distributed over its replicas.");
    declare_model(t);
    t.group("Batch");
    t.field("requests", &Options::requests, "file of requests")
        .positional()
        .required()
        .value_name("FILE");
    t.field("output", &Options::output,
            "file to write the answers to; one that has answers is continued. None: standard "
            "output")
        .value_name("FILE");
    t.field("as_finished", &Options::as_finished,
            "write each answer as soon as it is there, instead of in the order of the requests");
    t.field("json", &Options::json,
            "print one JSON object that counts requests, tokens and seconds; needs --output");
    t.include(&Options::tokenizer, chat_template_table());
    t.include(&Options::speculative, speculative_table());
    t.include(&Options::tokenizer, tokenizer_table());
    declare_engine(t);
    declare_run_flags(t, "batch");
  });
}

const FieldTable<ServeOptions>& serve_table() {
  using Options = ServeOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Serves a model over HTTP, in the form of OpenAI's API. Without tokenizer flags, it uses "
        "the tokenizer of the checkpoint. Under `megatron launch` rank 0 listens, the model is "
        "sharded over the ranks, and the requests are distributed over its replicas. On SIGTERM "
        "or SIGINT it refuses new requests, ends those that there are, and exits.");
    declare_model(t);
    t.include(&Options::server, server_table());
    t.include(&Options::tokenizer, chat_template_table());
    t.include(&Options::speculative, speculative_table());
    t.include(&Options::tokenizer, tokenizer_table());
    declare_engine(t);
    for (Field& field : known_flag_fields(kServerFlags)) t.add_field(std::move(field));
    declare_run_flags(t, "serve");
  });
}

const FieldTable<EvaluateOptions>& evaluate_table() {
  using Options = EvaluateOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Measures a model on tasks by log-likelihood, as lm-evaluation-harness does, and on "
        "Megatron-LM's zero-shot tasks. Without tokenizer flags, it uses the tokenizer of the "
        "checkpoint. Under `megatron launch` the model is sharded over the ranks, and the texts "
        "are distributed over its replicas.");
    declare_model(t);
    t.group("Tasks");
    t.field("task", &Options::task,
            "file of JSON lines, one or more times: {\"query\", \"choices\", \"gold\"}, "
            "{\"context\", \"continuation\"} or {\"text\"}, whose last word is predicted. Or "
            "LAMBADA or WIKITEXT103, with --valid-data")
        .required()
        .repeatable()
        .value_name("FILE");
    t.field("valid_data", &Options::valid_data, "file of LAMBADA or WIKITEXT103")
        .value_name("FILE");
    t.field("strict_lambada", &Options::strict_lambada,
            "predict the whole last word of LAMBADA, not only its last token");
    t.field("seq_length", &Options::seq_length,
            "tokens in a window of WIKITEXT103; none: the context length of training")
        .at_least(1);
    t.field("overlapping_eval", &Options::overlapping_eval,
            "tokens from one window of WIKITEXT103 to the next, which are scored; none: 32, or a "
            "window if that is shorter")
        .at_least(1);
    t.group("Output");
    t.field("json", &Options::json, "print one JSON object per task");
    t.include(&Options::tokenizer, tokenizer_table());
    declare_engine(t);
    declare_run_flags(t, "evaluate");
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

FillMaskOptions read_fill_mask_options(std::span<const std::string> args, std::int64_t world_size) {
  FillMaskOptions options = read_options(fill_mask_table(), args, "fill-mask");
  options.cache_mla_latents = false;
  check_model_options(options, world_size);
  if (options.parallel.context_parallel_size > 1)
    throw UserError(
        {"--context-parallel-size " + std::to_string(options.parallel.context_parallel_size),
         "fill-mask computes a text on the ranks of one model", "leave it out"});
  return options;
}

BatchOptions read_batch_options(std::span<const std::string> args, std::int64_t world_size) {
  BatchOptions options = read_options(batch_table(), args, "batch");
  check_speculative_options(options.speculative);
  check_model_options(options, world_size);
  if (options.json && options.output.empty())
    throw UserError({"--json", "standard output has the answers", "give --output FILE"});
  return options;
}

ServeOptions read_serve_options(std::span<const std::string> args, std::int64_t world_size) {
  ServeOptions options = read_options(serve_table(), args, "serve");
  if (std::ranges::count(options.server.api_key, "") > 0)
    throw UserError({"--api-key (MEGATRON_API_KEY)", "a key is empty, and everybody could send it",
                     "give a key, or leave it out for a server that asks for none"});
  check_speculative_options(options.speculative);
  check_model_options(options, world_size);
  return options;
}

EvaluateOptions read_evaluate_options(std::span<const std::string> args, std::int64_t world_size) {
  EvaluateOptions options = read_options(evaluate_table(), args, "evaluate");
  options.cache_mla_latents = false;
  check_model_options(options, world_size);
  const auto num_zero_shot = std::ranges::count_if(options.task, EvaluateOptions::is_zero_shot);
  if (num_zero_shot > 1)
    throw UserError({"--task", "LAMBADA and WIKITEXT103 have different data", "give one of them"});
  if ((num_zero_shot == 1) == options.valid_data.empty())
    throw UserError({"--valid-data", num_zero_shot == 1 ? "is missing" : "no task reads it",
                     "give it with --task LAMBADA or WIKITEXT103"});
  return options;
}

}  // namespace megatron
