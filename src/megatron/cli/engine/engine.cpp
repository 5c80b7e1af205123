// The entry point of libmegatron_engine.so. It dispatches the commands that need LibTorch.
#include "megatron/cli/engine/engine.h"

#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/run_command.h"

namespace megatron {
namespace {

using EngineCommand = int (*)(std::span<const std::string> args);

const std::vector<std::pair<std::string_view, EngineCommand>>& engine_commands() {
  static const std::vector<std::pair<std::string_view, EngineCommand>> table = {
      {"pretrain", run_pretrain},       {"generate", run_generate},
      {"replay", run_replay},           {"score", run_score},
      {"convert", run_convert},         {"checkpoint", run_checkpoint},
      {"hang-report", run_hang_report}, {"check", run_check},
      {"plan", run_plan_layouts},       {"plan --memory", run_plan_memory},
  };
  return table;
}

int run_engine_command(std::string_view name, std::span<const std::string> args) {
  for (const auto& [known, run] : engine_commands()) {
    if (known == name) return run(args);
  }
  throw UserError({"the engine", "does not know the command '" + std::string(name) + "'",
                   "build it again with `make build`"});
}

}  // namespace
}  // namespace megatron

/// Runs one command and returns its exit code. Does not throw.
extern "C" int megatron_engine_main(const char* command, int argc, const char* const* argv) {
  return megatron::run_command(command, [&] {
    const std::vector<std::string> args(argv, argv + argc);
    return megatron::run_engine_command(command, args);
  });
}
