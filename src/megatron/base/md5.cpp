#include "megatron/base/md5.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace megatron {
namespace {

constexpr std::array<int, 16> kShifts = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

/// The constants of the 64 steps: floor(2^32 * |sin(step + 1)|).
std::array<std::uint32_t, 64> make_sines() {
  std::array<std::uint32_t, 64> sines{};
  for (int step = 0; step < 64; ++step)
    sines[step] =
        static_cast<std::uint32_t>(std::floor(std::fabs(std::sin(step + 1.0)) * 4294967296.0));
  return sines;
}

void digest_block(const char* block, std::array<std::uint32_t, 4>& state) {
  static const std::array<std::uint32_t, 64> sines = make_sines();
  std::array<std::uint32_t, 16> words;
  std::memcpy(words.data(), block, 64);
  auto [a, b, c, d] = state;
  for (int step = 0; step < 64; ++step) {
    const int round = step / 16;
    std::uint32_t mix = 0;
    int word = 0;
    if (round == 0) {
      mix = (b & c) | (~b & d);
      word = step;
    } else if (round == 1) {
      mix = (d & b) | (~d & c);
      word = (5 * step + 1) % 16;
    } else if (round == 2) {
      mix = b ^ c ^ d;
      word = (3 * step + 5) % 16;
    } else {
      mix = c ^ (b | ~d);
      word = (7 * step) % 16;
    }
    const std::uint32_t rotated =
        std::rotl(a + mix + sines[step] + words[word], kShifts[4 * round + step % 4]);
    a = d;
    d = c;
    c = b;
    b += rotated;
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

}  // namespace

std::string md5_hex(std::string_view text) {
  std::string padded(text);
  padded.push_back(static_cast<char>(0x80));
  padded.resize((padded.size() + 8 + 63) / 64 * 64, '\0');
  const std::uint64_t bits = std::uint64_t{text.size()} * 8;
  std::memcpy(padded.data() + padded.size() - 8, &bits, 8);

  std::array<std::uint32_t, 4> state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
  for (std::size_t offset = 0; offset < padded.size(); offset += 64)
    digest_block(padded.data() + offset, state);

  std::string hex;
  for (const std::uint32_t word : state) {
    for (int byte = 0; byte < 4; ++byte) {
      const unsigned value = (word >> (8 * byte)) & 0xff;
      hex += "0123456789abcdef"[value >> 4];
      hex += "0123456789abcdef"[value & 15];
    }
  }
  return hex;
}

}  // namespace megatron
