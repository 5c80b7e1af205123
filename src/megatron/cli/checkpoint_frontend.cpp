// The front end of `megatron convert` and `megatron checkpoint`. It prints the help and reports
// mistakes in the flags before the engine is loaded.
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/config/checkpoint_options.h"

namespace megatron {

const FieldSet& convert_fields() { return convert_table().set(); }

int run_convert_frontend(std::span<const std::string> args) {
  std::cerr << notes_text(read_convert_options(args).parsed.notes);
  return run_in_engine("convert", args);
}

const FieldSet& checkpoint_fields() { return checkpoint_command_table().set(); }

int run_checkpoint_frontend(std::span<const std::string> args) {
  read_checkpoint_options(args);
  return run_in_engine("checkpoint", args);
}

}  // namespace megatron
