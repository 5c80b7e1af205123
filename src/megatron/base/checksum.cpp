#include "megatron/base/checksum.h"

#include <xxhash.h>

#include "megatron/base/format.h"

namespace megatron {

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t checksum(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::array<std::uint64_t, 2> checksum_128(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

std::string checksum_hex(std::uint64_t value) {
  return format("%016llx", static_cast<unsigned long long>(value));
}

}  // namespace megatron
