// Opens libmegatron_engine.so, which links LibTorch, only for the commands that compute.
#include <dlfcn.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/cli/command.h"

namespace megatron {
namespace {

using EngineMain = int(const char* command, int argc, const char* const* argv);

std::filesystem::path engine_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" /
         "libmegatron_engine.so";
}

/// Idle OpenMP threads spin for milliseconds by default, which starves a machine that runs anything
/// else (steps took 100 times as long beside a compilation). A spin of some tens of microseconds
/// bridges neighbouring operations, where waking up a thread would cost as much as a small
/// operation does; then they sleep. The user's own choice wins.
void limit_spinning() {
  if (!std::getenv("OMP_WAIT_POLICY")) ::setenv("GOMP_SPINCOUNT", "2000", /*overwrite=*/0);
}

EngineMain* load_engine() {
  limit_spinning();
  const auto path = engine_path();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    throw UserError({"cannot load the engine " + path.string(), reason ? reason : "",
                     "build it with `make build`, and keep LibTorch where it was at build time"});
  }
  void* symbol = ::dlsym(library, "megatron_engine_main");
  if (!symbol)
    throw UserError({"the engine " + path.string(), "is not of this version",
                     "build it again with `make build`"});
  return reinterpret_cast<EngineMain*>(symbol);
}

}  // namespace

void preload_engine() { load_engine(); }

int run_in_engine(std::string_view command, std::span<const std::string> args) {
  EngineMain* engine_main = load_engine();
  // A training run outlives the reader of its log; sockets between ranks report their own errors.
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<const char*> words;
  for (const std::string& arg : args) words.push_back(arg.c_str());
  return engine_main(std::string(command).c_str(), static_cast<int>(words.size()), words.data());
}

}  // namespace megatron
