// From the words of the command line to a command: for the program itself and for every rank that `launch` forks.
#include "megatron/cli/command.h"
#include "megatron/config/problems.h"
#include "megatron/config/run_guarded.h"

namespace megatron {

void refuse_command(const std::string& name) {
  if (const auto reason = absent_command_reason(name); !reason.empty()) {
    throw UserError({"'" + name + "'", "this command is not available in this version", std::string(reason)});
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  const std::string near = nearest_name(name, names);
  throw UserError({"'" + name + "'", "unknown command", near.empty() ? "see megatron --help" : "did you mean `megatron " + near + "`?"});
}

int dispatch(const std::vector<std::string>& words) {
  const std::span<const std::string> rest = std::span(words).subspan(1);
  const Command* command = find_command(words[0]);
  if (!command) return run_guarded("", [&]() -> int { refuse_command(words[0]); });
  return run_guarded(command->name, [&] { return command->run ? command->run(rest) : run_in_engine(command->name, rest); });
}

}  // namespace megatron
