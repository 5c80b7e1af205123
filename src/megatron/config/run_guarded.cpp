#include "megatron/config/run_guarded.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>

#include "megatron/config/command_line.h"

namespace megatron {
namespace {

void report(std::string_view command, const std::string& text) {
  const std::string name = command.empty() ? "megatron" : "megatron " + std::string(command);
  std::cerr << name << ": " << text << std::endl;
}

void flush_stdout() {
  errno = 0;
  std::cout.flush();
  const bool ok = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (ok || errno == EPIPE) return;
  throw UserError({"standard output", errno ? std::strerror(errno) : "could not be written", "free space, or write elsewhere"});
}

}  // namespace

int run_guarded(std::string_view command, const std::function<int()>& body) {
  try {
    const int code = body();
    flush_stdout();
    return code;
  } catch (const HelpRequested& help) {
    std::cout << help.text << std::flush;
    return 0;
  } catch (const UserError& error) {
    std::cout.flush();
    report(command, std::string("error: ") + error.what());
    return 2;
  } catch (const InternalError& error) {
    report(command, error.what());
  } catch (const std::bad_alloc&) {
    report(command, "error: out of memory");
  } catch (const std::exception& error) {
    report(command, std::string("internal error: ") + error.what());
  } catch (...) {
    report(command, "internal error: an exception of unknown type");
  }
  return 1;
}

}  // namespace megatron
