// The program `megatron`: finds the command and runs it, in this process or in the engine. Links no torch.
#include <csignal>
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/config/problems.h"
#include "megatron/config/run_guarded.h"

namespace megatron {
namespace {

[[noreturn]] void unknown_command(const std::string& name) {
  if (const auto reason = absent_command_reason(name); !reason.empty()) {
    throw UserError({"'" + name + "'", "this command is not available in this version", std::string(reason)});
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  const std::string near = nearest_name(name, names);
  throw UserError({"'" + name + "'", "unknown command", near.empty() ? "see megatron --help" : "did you mean `megatron " + near + "`?"});
}

int dispatch(const std::vector<std::string>& args) {
  const std::span<const std::string> rest = std::span(args).subspan(std::min<std::size_t>(args.size(), 1));
  const Command* command = find_command(args[0]);
  if (!command) return run_guarded("", [&]() -> int { unknown_command(args[0]); });
  return run_guarded(command->name, [&] { return command->run ? command->run(rest) : run_in_engine(command->name, rest); });
}

int main_program(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "--version") {
    return run_guarded("", [] {
      std::cout << "megatron " MEGATRON_VERSION "\n";
      return 0;
    });
  }
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    const int code = run_guarded("help", [] { return run_help({}); });
    return args.empty() ? 2 : code;
  }
  return dispatch(args);
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails and is reported
  return megatron::main_program({argv + std::min(argc, 1), argv + argc});
}
