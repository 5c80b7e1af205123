// The structure of GGUF files. The input is the file.
#include "megatron/formats/gguf.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_gguf(std::string_view input) {
  GgufFile file = read_gguf(std::as_bytes(std::span(input)), "model.gguf");
  for (const GgufTensor& tensor : file.tensors)
    require(tensor.bytes.end <= input.size() && tensor.bytes.size() == tensor.num_bytes(),
            "a tensor has other bytes");
  const std::string header = gguf_header(*file.metadata, file.tensors);
  require(file.tensors.empty() || header.size() <= file.tensors.front().bytes.begin,
          "a tensor lies in the header");
}

}  // namespace megatron::fuzz
