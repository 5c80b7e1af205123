// What `megatron pretrain` does before the engine is loaded: help, --print-config, and every mistake in the flags, in milliseconds. The ranks of a
// larger run meet first, so that one of them speaks for all.
#include <iostream>
#include <optional>

#include "megatron/cli/command.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/print_config.h"
#include "megatron/config/run_settings.h"

namespace megatron {

const FieldSet& pretrain_fields() { return run_table().set(); }

void check_pretrain(std::span<const std::string> args, std::int64_t world_size) { read_run(args, world_size); }

int run_pretrain_front(std::span<const std::string> args) {
  const LaunchEnvironment environment = find_launch_environment();
  const bool is_alone = environment.world_size == 1;
  std::optional<Run> run;
  try {
    run = read_run(args, environment.world_size);
  } catch (const HelpRequested&) {
    if (environment.rank == 0) throw;
    return 0;
  } catch (const UserError&) {
    if (is_alone) throw;
    return run_in_engine("pretrain", args);
  }
  if (run->options.print_config) {
    if (environment.rank == 0) std::cout << (run->options.json ? config_json(*run) : config_text(*run));
    return 0;
  }
  if (environment.rank == 0) std::cerr << notes_text(run->parsed);
  return run_in_engine("pretrain", args);
}

}  // namespace megatron
