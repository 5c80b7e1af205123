// Converts exceptions into messages and exit codes, for the commands of the front end and of the
// engine.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

namespace megatron {

/// Runs a command and returns its exit code. For --help, prints the text on stdout and returns 0.
/// For a UserError, prints `megatron <command>: error: …` on stderr and returns 2. For any other
/// exception, returns 1. A failed write to standard output is a UserError too, unless its reader
/// has closed it.
int run_command(std::string_view command, const std::function<int()>& body);

/// Flushes stdout. UserError with the reason if something could not be written, unless the reader
/// has closed it. Commands that print results one by one call it behind each.
void flush_stdout();

/// The exit code and the message of an exception.
struct CommandFailure {
  int code = 1;
  std::string text;  ///< "error: …"
};
/// Returns the exit code and the message of any exception other than HelpRequested.
CommandFailure command_failure(const std::exception_ptr& exception);

/// Flushes stdout and prints `megatron <command>: <text>` on stderr.
void report_failure(std::string_view command, const std::string& text);

}  // namespace megatron
