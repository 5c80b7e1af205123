// The entry points that libFuzzer calls. MEGATRON_FUZZ_TARGET is the name of the target.
#include <algorithm>
#include <cstdint>

#include "fuzz/target.h"

namespace {

const megatron::fuzz::Target& target() {
  static const megatron::fuzz::Target& found = *std::ranges::find(
      megatron::fuzz::targets(), MEGATRON_FUZZ_TARGET, &megatron::fuzz::Target::name);
  return found;
}

}  // namespace

/// Runs the target once, so that the time limit of an input excludes what a target opens once.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  megatron::fuzz::run(target(), "");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  megatron::fuzz::run(target(), {reinterpret_cast<const char*>(data), size});
  return 0;
}
