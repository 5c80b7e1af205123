// Loads libmegatron_engine.so, which links LibTorch. Only the commands that compute need it.
#include <dlfcn.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/cli/command.h"

namespace megatron {
namespace {

using EngineMain = int(const char* command, int argc, const char* const* argv);

std::filesystem::path engine_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" /
         "libmegatron_engine.so";
}

/// Limits how long idle OpenMP threads spin. By default they spin for milliseconds, which makes
/// steps up to 100 times slower on a busy host. Tens of microseconds suffice between consecutive
/// operations, where waking a thread would cost as much as a small operation. The user's own
/// OMP_WAIT_POLICY or GOMP_SPINCOUNT has precedence.
void limit_spinning() {
  if (!std::getenv("OMP_WAIT_POLICY")) ::setenv("GOMP_SPINCOUNT", "2000", /*overwrite=*/0);
}

/// Throws a UserError if ulimit -v leaves too few addresses for LibTorch, whose libraries would
/// abort the process while they are loaded.
void check_address_space() {
  constexpr double kMebibyte = 1 << 20, kLibraries = 480 * kMebibyte;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto addresses = static_cast<double>(limit.rlim_cur);
  if (addresses >= kLibraries) return;
  throw UserError(
      {format("ulimit -v of %.0f MiB", addresses / kMebibyte),
       format("is too small: the libraries alone need about %.0f MiB", kLibraries / kMebibyte),
       "raise it, or limit the memory by a control group instead"});
}

EngineMain* load_engine() {
  limit_spinning();
  check_address_space();
  const auto path = engine_path();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    throw UserError({"cannot load the engine " + path.string(), reason ? reason : "",
                     "build it with `make build`, and do not move LibTorch afterwards"});
  }
  void* symbol = ::dlsym(library, "megatron_engine_main");
  if (!symbol)
    throw UserError({"the engine " + path.string(), "has another version than this program",
                     "build it again with `make build`"});
  return reinterpret_cast<EngineMain*>(symbol);
}

}  // namespace

void preload_engine() { load_engine(); }

int run_in_engine(std::string_view command, std::span<const std::string> args) {
  EngineMain* engine_main = load_engine();
  // Training continues if the reader of its log exits. Sockets between ranks report their own
  // errors.
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<const char*> words;
  for (const std::string& arg : args) words.push_back(arg.c_str());
  return engine_main(std::string(command).c_str(), static_cast<int>(words.size()), words.data());
}

}  // namespace megatron
