#include "megatron/config/run_command.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/base/thread_limit.h"
#include "megatron/config/command_line.h"

namespace megatron {
namespace {

/// Returns whether stdout is a pipe or socket whose reader has closed it.
bool reader_is_gone() {
  pollfd state{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

/// Throws a UserError if the output of a successful command could not be written. A command that
/// failed has already reported why.
void flush_stdout(int code) {
  std::cout.flush();
  const bool ok = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!ok && code == 0 && !reader_is_gone())
    throw UserError(
        {"standard output", "could not be written", "free space on its disk, or write elsewhere"});
}

}  // namespace

CommandFailure command_failure(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const UserError& error) {
    return {2, std::string("error: ") + error.what()};
  } catch (const HardwareError& error) {
    return {1, std::string("error: ") + error.what()};
  } catch (const InternalError& error) {
    return {1, error.what()};
  } catch (const std::bad_alloc& error) {
    // With details it is a run whose configuration needs more memory than there is.
    const std::string details = error.what();
    if (details == std::bad_alloc().what()) return {1, "error: out of memory"};
    return {2, "error: out of memory: " + details};
  } catch (const std::filesystem::filesystem_error& error) {
    const UserError refused({"cannot access " + error.path1().string(), error.code().message(),
                             "check the path and its permissions"});
    return {2, std::string("error: ") + refused.what()};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)
      return {2, std::string("error: ") + thread_error("a thread", error).what()};
    return {1, std::string("internal error: ") + error.what()};
  } catch (const std::exception& error) {
    return {1, std::string("internal error: ") + error.what()};
  } catch (...) {
    return {1, "internal error: an exception of unknown type"};
  }
}

void report_failure(std::string_view command, const std::string& text) {
  std::cout.flush();
  const std::string name = command.empty() ? "megatron" : "megatron " + std::string(command);
  std::cerr << name << ": " << text << std::endl;
}

int run_command(std::string_view command, const std::function<int()>& body) {
  try {
    const int code = body();
    flush_stdout(code);
    return code;
  } catch (const HelpRequested& help) {
    std::cout << help.text << std::flush;
    return 0;
  } catch (...) {
    const CommandFailure failure = command_failure(std::current_exception());
    report_failure(command, failure.text);
    return failure.code;
  }
}

}  // namespace megatron
