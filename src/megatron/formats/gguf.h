// Reads and writes the structure of GGUF files, in which llama.cpp keeps models: metadata, and
// where the tensors' bytes lie. The caller reads and writes those bytes.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/base/json_value.h"
#include "megatron/formats/zip_directory.h"

namespace megatron {

/// How numbers are stored: blocks of some numbers in some bytes.
struct GgufType {
  std::uint32_t id = 0;
  std::string_view name = "F32";
  std::uint64_t block_size = 1, block_bytes = 4;
  bool operator==(const GgufType&) const = default;
};
inline constexpr GgufType kGgufF32{0, "F32", 1, 4}, kGgufF16{1, "F16", 1, 2},
    kGgufQ80{8, "Q8_0", 32, 34}, kGgufBf16{30, "BF16", 1, 2};

struct GgufTensor {
  std::string name = {};
  GgufType type = kGgufF32;
  std::vector<std::int64_t> shape = {};  ///< row-major: the last dimension has neighbours
  ByteRange bytes = {};                  ///< in the file

  /// Returns the number of bytes that shape and type need. The last dimension must be a multiple of
  /// the type's block size.
  std::uint64_t num_bytes() const;
};

struct GgufFile {
  JsonValue metadata = {};  ///< an object; numbers of float32 with as few digits as name them
  std::vector<GgufTensor> tensors = {};
};

/// Reads the structure of the file with these bytes. Throws a UserError that names `source` and the
/// byte, also for tensors of other types than those above, and for big-endian files.
GgufFile read_gguf(std::span<const std::byte> bytes, const std::string& source);

/// Assigns the places of the tensors, in order, and returns the bytes before the first one's. Zeros
/// fill the places between tensors. Integers are written in 32 bits, unsigned where they are,
/// fractions in float32, and the values of an array as the first one. An empty array has texts.
std::string gguf_header(const Json& metadata, std::vector<GgufTensor>& tensors);

}  // namespace megatron
