// NumPy's files, of which the caches of sample orders consist. The input is the file.
#include "megatron/datasets/npy.h"

#include <algorithm>

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_npy(std::string_view input) {
  const NpyArray array = NpyArray::load(write_input("array.npy", input));
  for (std::int64_t i = 0; i < std::min<std::int64_t>(array.size(), 100); ++i) {
    array.at(i);
    array.at(array.size() - 1 - i);
  }
}

}  // namespace megatron::fuzz
