// The program `megatron`. It finds the command and runs it, in this process or in the engine. It
// does not link LibTorch.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "megatron/cli/command.h"
#include "megatron/cli/script_names.h"
#include "megatron/config/run_command.h"

namespace megatron {
namespace {

/// Opens /dev/null for standard streams that are closed, as cron and some supervisors start
/// programs. Otherwise the next file that is opened would take their numbers. Input then ends at
/// once, and output fails.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) != stream) ::_exit(1);
}

/// Makes each line of stderr one write, up to 64 KiB, so that the lines of several processes that
/// share a log do not mix.
void write_stderr_by_line() {
  static std::array<char, 65536> buffer;
  std::setvbuf(stderr, buffer.data(), _IOLBF, buffer.size());
  std::cerr << std::nounitbuf;
}

int main_program(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "--version") {
    return run_command("", [] {
      std::cout << "megatron " MEGATRON_VERSION "\n";
      return 0;
    });
  }
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    const int code = run_command("help", [] { return run_help({}); });
    return args.empty() ? 2 : code;
  }
  return dispatch(args);
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  megatron::open_closed_streams();
  megatron::write_stderr_by_line();
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // makes a write beyond `ulimit -f` fail, which is reported
  std::signal(SIGUSR2, SIG_IGN);  // makes a rank dump its calls; ignored until it can
  std::vector<std::string> args =
      argc > 0 ? megatron::script_command(argv[0]) : std::vector<std::string>{};
  args.insert(args.end(), argv + std::min(argc, 1), argv + argc);
  return megatron::main_program(megatron::with_script_translated(std::move(args)));
}
