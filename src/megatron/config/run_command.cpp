#include "megatron/config/run_command.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/thread_limit.h"
#include "megatron/config/command_line.h"

namespace megatron {
namespace {

/// Returns whether stdout is a pipe or socket whose reader has closed it.
bool reader_is_gone() {
  pollfd state{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0;
}

}  // namespace

void flush_stdout() {
  const bool is_flushed = std::fflush(stdout) == 0;  // std::cout has no buffer of its own
  int reason = is_flushed ? 0 : errno;
  std::cout.flush();
  const bool ok = is_flushed && std::cout.good() && std::ferror(stdout) == 0;
  if (ok || reader_is_gone()) return;
  // Where an earlier write has failed, another one says why.
  if (is_flushed && ::write(STDOUT_FILENO, "\n", 1) < 0) reason = errno;
  if (reason != 0) throw_file_error("write", "standard output", reason);
  throw UserError(
      {"standard output", "could not be written", "free space on its disk, or write elsewhere"});
}

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
    int code = 0;
    try {
      code = body();
    } catch (const HelpRequested& help) {
      std::cout << help.text;
    }
    if (code == 0) flush_stdout();  // a command that failed has reported why
    return code;
  } catch (...) {
    const CommandFailure failure = command_failure(std::current_exception());
    report_failure(command, failure.text);
    return failure.code;
  }
}

}  // namespace megatron
