#include "megatron/config/checkpoint_options.h"

#include "megatron/base/words.h"
#include "megatron/config/known_flags.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

/// Flags of Megatron-LM's tools/checkpoint/convert.py.
constexpr KnownFlags kConvertFlags = {
    KnownFlags::Treatment::accepted,
    "without effect: the format of --load is recognized, --format names the one to write, and what "
    "is written loads on any layout",
    "",
    "model-type={GPT} loader=* saver=* max-queue-size=* no-checking megatron-path=* "
    "target-tensor-parallel-size=* target-pipeline-parallel-size=* target-expert-parallel-size=*"};

void require_folders(const CheckpointOptions& options) {
  const std::size_t wanted = options.action == "diff" ? 2 : 1;
  if (options.folders.size() == wanted) return;
  throw UserError({options.action,
                   "takes " + std::string(wanted == 1 ? "1 folder" : "2 folders") + ", not " +
                       std::to_string(options.folders.size()),
                   options.action == "diff"
                       ? "write: megatron checkpoint diff A B"
                       : "write: megatron checkpoint " + options.action + " DIR"});
}

}  // namespace

const FieldTable<ConvertOptions>& convert_table() {
  return field_table<ConvertOptions>([](auto& t) {
    t.about(
        "Converts the weights of a checkpoint or of a Hugging Face directory. The format of the "
        "input is detected. The tokenizer is converted too: that of the flags or, without "
        "tokenizer "
        "flags, that of the input.");
    t.group("Conversion");
    t.field("load", &ConvertOptions::load,
            "folder of checkpoints that pretrain saved, Hugging Face directory or GGUF file")
        .required()
        .alias("load-dir")
        .value_name("DIR");
    t.field("save", &ConvertOptions::save, "folder to write")
        .required()
        .alias("save-dir")
        .value_name("DIR");
    t.field("format", &ConvertOptions::format,
            "format to write; hf: a Hugging Face directory; gguf: a folder with model.gguf for "
            "llama.cpp; megatron: a release checkpoint; torch_dist: a checkpoint of Megatron-LM, "
            "with the state of the optimizer; dcp: the same tensors for "
            "torch.distributed.checkpoint")
        .required()
        .choices({"hf", "gguf", "megatron", "torch_dist", "dcp"})
        .alias("to");
    t.field("hf_model_type", &ConvertOptions::hf_model_type,
            "model family to write with --format hf or gguf; default: that of the input, else the "
            "first that can represent the model")
        .choices(split_words(
            "gpt2 llama qwen2 qwen3 mistral mixtral qwen2_moe qwen3_moe olmoe starcoder2 "
            "deepseek_v2 deepseek_v3 kimi_k2 gemma gemma2 gemma3_text vaultgemma phi3 "
            "seed_oss hunyuan_v1_dense smollm3 arcee olmo2 olmo3 exaone4 gpt_oss "
            "llama4_text ministral ministral3 glm glm4 glm4_moe solar_open dots1 "
            "minimax_m2 ernie4_5 ernie4_5_moe flex_olmo hunyuan_v1_moe gpt_neox nemotron "
            "stablelm phi granite granitemoe cohere cohere2 qwen3_next qwen3_5_text "
            "qwen3_5_moe_text olmo_hybrid mamba2 nemotron_h bamba granitemoehybrid "
            "bert megatron-bert roberta t5 mt5 umt5"));
    t.field("dtype", &ConvertOptions::dtype,
            "type of the written weights, q8_0 for --format gguf alone; default: as stored")
        .choices({"fp32", "bf16", "fp16", "q8_0"});
    t.field("ckpt_step", &ConvertOptions::ckpt_step, "iteration to load; default: the latest")
        .at_least(0);
    t.field("keep_non_finite", &ConvertOptions::keep_non_finite,
            "convert weights even if some are NaN or infinite, instead of refusing them");
    t.include(&ConvertOptions::tokenizer, tokenizer_table());
    for (Field& field : known_flag_fields(kConvertFlags)) t.add_field(std::move(field));
  });
}

const FieldTable<CheckpointOptions>& checkpoint_command_table() {
  return field_table<CheckpointOptions>([](auto& t) {
    t.about(
        "inspect DIR prints the contents of a checkpoint. verify DIR checks every checksum, and "
        "that every number is finite. diff A B prints the largest difference of each weight. gc "
        "DIR "
        "removes what interrupted saves left behind and, with --keep, old iterations.");
    t.group("Checkpoint");
    t.field("action", &CheckpointOptions::action, "action to perform")
        .positional()
        .required()
        .choices({"inspect", "verify", "diff", "gc"});
    t.field("folders", &CheckpointOptions::folders, "checkpoints or Hugging Face directories")
        .positional()
        .value_name("DIR");
    t.field("json", &CheckpointOptions::json, "inspect: print JSON");
    t.field("all", &CheckpointOptions::all,
            "verify: check every iteration instead of only the latest");
    t.field(
         "keep", &CheckpointOptions::keep,
         "gc: iterations to keep, the newest ones; the one that a run resumes from always stays; "
         "default: all")
        .at_least(1);
    t.field("dry_run", &CheckpointOptions::dry_run, "gc: only say what would be removed");
  });
}

ConvertOptions read_convert_options(std::span<const std::string> args) {
  ConvertOptions options;
  options.parsed = parse_command_line(convert_table(), args, options, "convert");
  return options;
}

CheckpointOptions read_checkpoint_options(std::span<const std::string> args) {
  CheckpointOptions options;
  parse_command_line(checkpoint_command_table(), args, options, "checkpoint");
  require_folders(options);
  return options;
}

}  // namespace megatron
