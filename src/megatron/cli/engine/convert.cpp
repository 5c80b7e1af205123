// megatron convert: weights between our checkpoints and Hugging Face directories.
#include "megatron/checkpoint/convert.h"

#include <iostream>

#include "megatron/base/error.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/fields.h"

namespace megatron {
namespace {

struct ConvertOptions {
  std::string load, save, format, hf_model_type, dtype;
  std::optional<std::int64_t> ckpt_step;
};

const FieldTable<ConvertOptions>& convert_table() {
  static const FieldTable<ConvertOptions> table = [] {
    FieldTable<ConvertOptions> t;
    t.about("Converts the weights of a checkpoint or of a Hugging Face directory; the format of the input is recognised.");
    t.group("Conversion");
    t.field("load", &ConvertOptions::load, "folder that --save of pretrain wrote, or a Hugging Face directory").required().value_name("DIR");
    t.field("save", &ConvertOptions::save, "folder to write").required().value_name("DIR");
    t.field("format", &ConvertOptions::format, "hf: a Hugging Face directory; megatron: a release checkpoint")
        .required()
        .choices({"hf", "megatron", "gguf"});
    t.field("hf_model_type", &ConvertOptions::hf_model_type,
            "family to write with --format hf; default: where the weights came from, else the first that can hold them")
        .choices({"gpt2", "llama", "qwen2", "qwen3", "mistral"});
    t.field("dtype", &ConvertOptions::dtype, "type of the written weights; default: as stored").choices({"fp32", "bf16", "fp16"});
    t.field("ckpt_step", &ConvertOptions::ckpt_step, "iteration to load; default: the latest").at_least(0);
    return t;
  }();
  return table;
}

std::optional<c10::ScalarType> scalar_type(const std::string& name) {
  if (name == "fp32") return c10::kFloat;
  if (name == "bf16") return c10::kBFloat16;
  if (name == "fp16") return c10::kHalf;
  return std::nullopt;
}

}  // namespace

int run_convert(std::span<const std::string> args) {
  ConvertOptions options;
  parse_command_line(convert_table(), args, options, "convert");
  if (options.format == "gguf") throw UserError({"--format gguf", "not in this version", "use --format hf, and llama.cpp's converter from there"});
  const auto folder = convert_checkpoint({.load = options.load,
                                          .save = options.save,
                                          .format = options.format,
                                          .hf_model_type = options.hf_model_type,
                                          .dtype = scalar_type(options.dtype),
                                          .step = options.ckpt_step});
  std::cout << "wrote " << folder.string() << "\n";
  return 0;
}

}  // namespace megatron
