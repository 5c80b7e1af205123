// The front end of `megatron pretrain`. It handles --help and --print-config and reports mistakes
// in the flags before the engine is loaded.
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/cli/rank_frontend.h"
#include "megatron/config/print_config.h"
#include "megatron/config/run_settings.h"

namespace megatron {

const FieldSet& pretrain_fields() { return run_table().set(); }

void check_pretrain(std::span<const std::string> args, std::int64_t world_size) {
  read_run(args, world_size);
}

int run_pretrain_frontend(std::span<const std::string> args) {
  const LaunchEnvironment environment = find_launch_environment();
  RunConfig run;
  if (const auto code = parse_on_rank(environment, "pretrain", args,
                                      [&] { run = read_run(args, environment.world_size); }))
    return *code;
  if (environment.rank == 0) std::cerr << notes_text(run.parsed.notes);
  if (run.options.print_config) {
    if (environment.rank == 0)
      std::cout << (run.options.json ? config_json(run) : config_text(run));
    return 0;
  }
  return run_in_engine("pretrain", args);
}

}  // namespace megatron
