// The front end of `megatron check`. It prints the help and reports mistakes in the flags before
// the engine is loaded.
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/config/check_options.h"

namespace megatron {

const FieldSet& check_fields() { return check_table().set(); }

int run_check_frontend(std::span<const std::string> args) {
  const CheckedRun checked = read_check(args);
  std::cerr << notes_text(checked.run.parsed.notes);
  return run_in_engine("check", args);
}

}  // namespace megatron
