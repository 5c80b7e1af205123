// Files of torch.save, zipped or older. The input is the file.
#include "megatron/formats/torch_file.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_torch_file(std::string_view input) {
  const TorchFile file(std::as_bytes(std::span(input)), "a.pt", 1000);
  for (const NamedTensor& named : file.tensors(file.root())) {
    const ByteRange bytes = named.tensor.bytes(), storage = named.tensor.storage;
    require(storage.begin >= 1000 && storage.end <= 1000 + input.size(),
            "a storage lies outside of the file");
    require(bytes.begin >= storage.begin && bytes.begin <= bytes.end && bytes.end <= storage.end,
            "a tensor lies outside of its storage");
    if (named.tensor.is_contiguous())
      require(bytes.size() == static_cast<std::uint64_t>(named.tensor.num_elements()) *
                                  named.tensor.dtype.element_size,
              "a contiguous tensor has other bytes");
  }
}

}  // namespace megatron::fuzz
