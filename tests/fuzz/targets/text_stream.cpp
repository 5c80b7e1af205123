// Compressed texts. The input is a file, plain or compressed with gzip or zstd.
#include "megatron/datasets/text_stream.h"

#include <string>

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_text_stream(std::string_view input) {
  const auto stream = open_text(write_input("text", input));
  std::string buffer(1 << 16, '\0');
  for (int i = 0; i < 64 && stream->read(buffer.data(), buffer.size()) > 0; ++i) {
  }
}

}  // namespace megatron::fuzz
