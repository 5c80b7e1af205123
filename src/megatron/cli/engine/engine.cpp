// The entry point of libmegatron_engine.so.
#include <string>
#include <vector>

#include "megatron/cli/engine/run_megatron.h"

/// Runs one command and returns its exit code. Does not throw.
extern "C" int megatron_engine_main(const char* command, int argc, const char* const* argv) {
  std::vector<std::string> args{command};
  args.insert(args.end(), argv, argv + argc);
  return megatron::run_megatron(args, megatron::library_families());
}
