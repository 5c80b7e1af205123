// What `megatron generate` and `megatron score` do before the engine is loaded: help and every mistake in the flags, in milliseconds.
#include "megatron/cli/command.h"
#include "megatron/config/inference_options.h"

namespace megatron {

const FieldSet& generate_fields() { return generate_table().set(); }

int run_generate_front(std::span<const std::string> args) {
  read_generate_options(args);
  return run_in_engine("generate", args);
}

const FieldSet& score_fields() { return score_table().set(); }

int run_score_front(std::span<const std::string> args) {
  read_score_options(args);
  return run_in_engine("score", args);
}

}  // namespace megatron
