// Finds the command that the arguments name and runs it, for the program itself and for every rank
// that `launch` forks.
#include <algorithm>
#include <array>
#include <utility>

#include "megatron/cli/command.h"
#include "megatron/config/problems.h"
#include "megatron/config/run_command.h"

namespace megatron {
namespace {

/// The names that other programs use for the commands.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kOtherNames{{
    {"train", "pretrain gpt"},
    {"training", "pretrain gpt"},
    {"finetune", "pretrain gpt --finetune"},
    {"preprocess", "preprocess-data"},
    {"inference", "generate"},
    {"infer", "generate"},
    {"eval", "score"},
    {"evaluate", "score"},
    {"export", "convert"},
    {"import", "convert"},
    {"inspect", "checkpoint inspect"},
    {"verify", "checkpoint verify"},
    {"run", "launch"},
}};

}  // namespace

std::string nearest_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  for (const auto& [other, command] : kOtherNames) names.emplace_back(other);
  const std::string near = nearest_name(name, names);
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const auto& pair) { return pair.first == near; });
  return other == kOtherNames.end() ? near : std::string(other->second);
}

void refuse_command(const std::string& name) {
  if (const auto reason = absent_command_reason(name); !reason.empty()) {
    throw UserError(
        {"'" + name + "'", "this command is not available in this version", std::string(reason)});
  }
  const std::string meant = nearest_command(name);
  throw UserError(
      {"'" + name + "'", "unknown command",
       meant.empty() ? "see megatron --help" : "did you mean `megatron " + meant + "`?"});
}

int dispatch(const std::vector<std::string>& args) {
  const std::span<const std::string> rest = std::span(args).subspan(1);
  const Command* command = find_command(args[0]);
  if (!command) return run_command("", [&]() -> int { refuse_command(args[0]); });
  return run_command(command->name, [&] {
    return command->run ? command->run(rest) : run_in_engine(command->name, rest);
  });
}

}  // namespace megatron
