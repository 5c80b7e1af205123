// The header of safetensors files. The input is the file.
#include "megatron/checkpoint/safetensors.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_safetensors(std::string_view input) {
  const SafetensorsFile file(write_input("model.safetensors", input));
  for (const StoredTensor& tensor : file.tensors())
    require(file.bytes(tensor).size() == tensor.num_bytes(), "a tensor has other bytes");
}

}  // namespace megatron::fuzz
