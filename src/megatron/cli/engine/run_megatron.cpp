#include "megatron/cli/engine/run_megatron.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/run_command.h"

namespace megatron {
namespace {

using EngineCommand = int (*)(std::span<const std::string> args, const ModelFamilies& families);

constexpr std::array<std::pair<std::string_view, EngineCommand>, 15> kCommands{{
    {"pretrain", run_pretrain},
    {"generate", run_generate},
    {"replay", run_replay},
    {"score", run_score},
    {"fill-mask", run_fill_mask},
    {"batch", run_batch},
    {"serve", run_serve},
    {"evaluate", run_evaluate},
    {"convert", run_convert},
    {"checkpoint", run_checkpoint},
    {"hang-report", run_hang_report},
    {"check", run_check},
    {"plan", run_plan_layouts},
    {"plan --memory", run_plan_memory},
    {"plan --checkpoint", run_plan_checkpoint},
}};

}  // namespace

int run_megatron(std::span<const std::string> args, const ModelFamilies& families) {
  const std::string name = args.empty() ? "" : args[0];
  return run_command(name, [&] {
    for (const auto& [known, run] : kCommands)
      if (known == name) return run(args.subspan(1), families);
    throw UserError(
        {"'" + name + "'", "the engine does not know this command",
         "use one of " + joined_text(kCommands, ", ", [](const auto& one) { return one.first; })});
  });
}

}  // namespace megatron
