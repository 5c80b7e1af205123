// Implements `megatron convert`: converts weights between checkpoints and Hugging Face directories.
#include "megatron/checkpoint/convert.h"

#include <iostream>

#include "megatron/cli/engine/engine.h"
#include "megatron/config/checkpoint_options.h"

namespace megatron {
namespace {

std::optional<c10::ScalarType> scalar_type(const std::string& name) {
  if (name == "fp32") return c10::kFloat;
  if (name == "bf16") return c10::kBFloat16;
  if (name == "fp16") return c10::kHalf;
  return std::nullopt;
}

}  // namespace

int run_convert(std::span<const std::string> args, const ModelFamilies& families) {
  const ConvertOptions options = read_convert_options(args);
  const ConvertResult conversion =
      convert_checkpoint({.load = options.load,
                          .save = options.save,
                          .format = options.format,
                          .hf_model_type = options.hf_model_type,
                          .dtype = scalar_type(options.dtype),
                          .is_q8_0 = options.dtype == "q8_0",
                          .step = options.ckpt_step,
                          .tokenizer = tokenizer_flags(options.tokenizer, options.parsed),
                          .allow_non_finite = options.keep_non_finite,
                          .families = &families});
  for (const std::string& note : conversion.notes) std::cerr << "note: " << note << "\n";
  std::cout << "wrote " << conversion.folder.string() << "\n";
  return 0;
}

}  // namespace megatron
