#include "megatron/config/inference_options.h"

#include <array>

#include "megatron/base/error.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

/// What of the parallel flags means something without training.
constexpr std::array kParallelFields{"tensor_model_parallel_size",
                                     "pipeline_model_parallel_size",
                                     "use_tp_pp_dp_mapping",
                                     "num_virtual_stages_per_pipeline_rank",
                                     "decoder_first_pipeline_num_layers",
                                     "decoder_last_pipeline_num_layers",
                                     "pipeline_model_parallel_layout",
                                     "device",
                                     "cpu_transport",
                                     "distributed_timeout_minutes"};

const FieldTable<ParallelConfig>& parallel_fields() {
  static const FieldTable<ParallelConfig> table = [] {
    FieldTable<ParallelConfig> t;
    for (const char* name : kParallelFields) {
      const Field* field = parallel_table().set().find_name(name);
      MEGATRON_CHECK(field != nullptr, "no parallel setting is called ", name);
      t.add_erased(*field);
    }
    return t;
  }();
  return table;
}

template <class Options>
void declare_model(FieldTable<Options>& table) {
  using Text = std::string Options::*;
  using Number = std::optional<std::int64_t> Options::*;
  table.group("Model");
  table.field("load", Text{&Options::load}, "checkpoint or Hugging Face folder").required().value_name("DIR");
  table.field("ckpt_step", Number{&Options::ckpt_step}, "iteration to load; none: the latest").at_least(0);
  using Flag = bool Options::*;
  table.field("bf16", Flag{&Options::bf16}, "compute in bfloat16, whatever the weights' own type");
  table.field("fp16", Flag{&Options::fp16}, "compute in float16");
  table.field("fp32", Flag{&Options::fp32}, "compute in float32");
}

template <class Options>
void declare_parallel(FieldTable<Options>& table) {
  table.include(static_cast<ParallelConfig Options::*>(&Options::parallel), parallel_fields());
}

void check_model_options(const ModelOptions& options, std::int64_t world_size) {
  Settings settings;
  settings.parallel = options.parallel;
  Problems problems = check_sizes(mesh_sizes(options.parallel), world_size);
  problems.add(evaluate(pipeline_rules(), settings, {}));
  if (options.bf16 + options.fp16 + options.fp32 > 1) {
    const std::string got = std::string(options.bf16 ? "--bf16 " : "") + (options.fp16 ? "--fp16 " : "") + (options.fp32 ? "--fp32 " : "");
    problems.add({got + "together", "a model computes in one type", "give at most one of them; none: the checkpoint's own"});
  }
  problems.throw_if_any();
}

}  // namespace

const FieldTable<GenerateOptions>& generate_table() {
  static const FieldTable<GenerateOptions> table = [] {
    using Options = GenerateOptions;
    FieldTable<Options> t;
    t.about(
        "Continues each prompt until the end of the document or --max-new-tokens. Without tokenizer flags, the checkpoint's own tokenizer serves. "
        "Under `megatron launch` the model is cut over the ranks, and prompts are dealt to its replicas; the texts come in the prompts' order.");
    declare_model(t);
    t.group("Prompts");
    t.field("prompt", &Options::prompt, "text to continue; may be given again").repeatable().value_name("TEXT");
    t.field("prompt_file", &Options::prompt_file, "one prompt per line; in a .jsonl file, the field \"text\" of each").value_name("FILE");
    t.group("Sampling");
    t.field("max_new_tokens", &Options::max_new_tokens, "tokens to add at most").at_least(0);
    t.field("temperature", &Options::temperature, "divides the logits; 0 takes the most likely token").at_least(0);
    t.field("top_k", &Options::top_k, "draw among the k most likely tokens; 0: all").at_least(0).alias("top_k");
    t.field("top_p", &Options::top_p, "draw among the most likely tokens that together exceed this probability; 0: all")
        .at_least(0)
        .at_most(1)
        .alias("top_p");
    t.field("seed", &Options::seed, "of the draws; a text depends on it, the prompt and the prompt's number alone").at_least(0);
    t.group("Output");
    t.field("json", &Options::json, "print prompt, prompt_ids, text, ids and finish_reason per prompt; text and ids are what was added");
    t.include(&Options::tokenizer, tokenizer_table());
    declare_parallel(t);
    return t;
  }();
  return table;
}

const FieldTable<ScoreOptions>& score_table() {
  static const FieldTable<ScoreOptions> table = [] {
    FieldTable<ScoreOptions> t;
    t.about(
        "Reads {\"ids\": [...]} per line and prints {\"logprobs\": [...], \"loss\": x}: the log-probability of every id given those before it, and "
        "minus their mean. A single id has no log-probability and the loss null. Under `megatron launch`, whose standard input is empty, the lines "
        "come from --input; the model is cut over the ranks, and lines are dealt to its replicas.");
    declare_model(t);
    t.group("Input");
    t.field("input", &ScoreOptions::input, "file of the lines; none: standard input").value_name("FILE");
    declare_parallel(t);
    return t;
  }();
  return table;
}

GenerateOptions read_generate_options(std::span<const std::string> args, std::int64_t world_size) {
  GenerateOptions options;
  parse_command_line(generate_table(), args, options, "generate");
  check_model_options(options, world_size);
  if (options.prompt.empty() && options.prompt_file.empty()) {
    throw UserError({"no prompt", "", "give --prompt TEXT (as often as you like) or --prompt-file FILE"});
  }
  return options;
}

ScoreOptions read_score_options(std::span<const std::string> args, std::int64_t world_size) {
  ScoreOptions options;
  parse_command_line(score_table(), args, options, "score");
  check_model_options(options, world_size);
  return options;
}

}  // namespace megatron
