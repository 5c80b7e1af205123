// The entry point that libFuzzer calls. MEGATRON_FUZZ_TARGET is the name of the target.
#include <algorithm>
#include <cstdint>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using megatron::fuzz::Target;
  static const Target& target =
      *std::ranges::find(megatron::fuzz::targets(), MEGATRON_FUZZ_TARGET, &Target::name);
  megatron::fuzz::run(target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
