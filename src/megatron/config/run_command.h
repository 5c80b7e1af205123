// The one place where failures become exit codes, for commands of the front and of the engine
// alike.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

namespace megatron {

/// Runs a command and returns its exit code. --help: text on stdout, 0. UserError: `megatron
/// <command>: error: …` on stderr, 2. Anything else: 1. A standard output that could not be written
/// is a UserError too, unless its reader went away.
int run_command(std::string_view command, const std::function<int()>& body);

/// What an exception means to the user.
struct CommandFailure {
  int code = 1;
  std::string text;  ///< "error: …"
};
/// Of any exception but HelpRequested.
CommandFailure command_failure(const std::exception_ptr& exception);

/// `megatron <command>: <text>` on stderr, behind what stdout still holds.
void report_failure(std::string_view command, const std::string& text);

}  // namespace megatron
