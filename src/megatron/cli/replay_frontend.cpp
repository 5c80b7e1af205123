// The front end of `megatron replay`. It prints the help and reports mistakes in the flags before
// the engine is loaded.
#include "megatron/cli/command.h"
#include "megatron/config/replay_options.h"

namespace megatron {

const FieldSet& replay_fields() { return replay_table().set(); }

int run_replay_frontend(std::span<const std::string> args) {
  read_replay_options(args);
  return run_in_engine("replay", args);
}

}  // namespace megatron
