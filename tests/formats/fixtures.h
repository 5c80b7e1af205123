// The files of tests/formats/fixtures, and bytes as hexadecimal digits.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace megatron {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(MEGATRON_SOURCE_DIR "/tests/formats/fixtures") / name;
}

inline std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

inline std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

}  // namespace megatron
