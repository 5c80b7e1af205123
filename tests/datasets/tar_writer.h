// Makes tar archives byte by byte, damaged ones too.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

namespace megatron::test {

/// Writes the checksum of the header at `begin`.
inline void set_tar_sum(std::string& archive, std::size_t begin = 0) {
  std::memset(archive.data() + begin + 148, ' ', 8);
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[begin + i]);
  char text[16];
  std::snprintf(text, sizeof text, "%06o", sum % 01000000);
  std::memcpy(archive.data() + begin + 148, text, 7);
}

/// Returns a ustar header and the data, filled up to whole blocks.
inline std::string tar_file(const std::string& name, const std::string& data, char type = '0') {
  std::string block(512, '\0');
  std::memcpy(block.data(), name.data(), std::min<std::size_t>(name.size(), 100));
  char text[16];
  std::snprintf(text, sizeof text, "%011zo", data.size());
  std::memcpy(block.data() + 124, text, 11);
  block[156] = type;
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  set_tar_sum(block);
  return block + data + std::string((512 - data.size() % 512) % 512, '\0');
}

/// Returns the end of an archive.
inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace megatron::test
