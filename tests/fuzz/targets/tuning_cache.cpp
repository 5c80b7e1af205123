// A cached measurement of this machine. The input is the file.
#include "megatron/base/tuning_cache.h"

#include <cstdlib>
#include <filesystem>

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_tuning_cache(std::string_view input) {
  static const std::string file = [] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any other thread of the target
    ::setenv("XDG_CACHE_HOME", input_folder().c_str(), 1);
    cached_measurement("speed", [] { return std::string("1"); });
    const std::filesystem::directory_iterator files(tuning_cache_folder());
    return "megatron/" + files->path().filename().string();
  }();
  write_input(file, input);
  const std::string kept = cached_measurement("speed", [] { return std::string("measured"); });
  require(kept == (input.empty() ? "measured" : input), "the measurement is another one");
}

}  // namespace megatron::fuzz
