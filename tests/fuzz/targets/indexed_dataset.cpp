// The .idx and .bin files of a data set. The input is the .idx file; its size chooses
// how it is opened. The .bin file has 4096 bytes.
#include "megatron/datasets/indexed_dataset.h"

#include <algorithm>
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"

namespace megatron::fuzz {

void parse_indexed_dataset(std::string_view input) {
  const std::string index = write_input("data.idx", input);
  write_input("data.bin", std::string(4096, '\1'));
  const std::string prefix = index.substr(0, index.size() - 4);
  const unsigned choice = input.size() % 8;
  const IndexedDataset data(
      prefix,
      {.mmap = (choice & 1) != 0, .multimodal = (choice & 2) != 0, .partial = (choice & 4) != 0});
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(data.num_sequences(), 20); ++i) {
    const std::int64_t length = data.sequence_lengths()[i];
    tokens.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(length, 0, 100)));
    try {
      data.read(i, std::max<std::int64_t>(length - 100, 0), tokens);
    } catch (const UserError&) {  // the next sequence may be whole
    }
  }
  data.check();
}

}  // namespace megatron::fuzz
