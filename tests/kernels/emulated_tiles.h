// Emulates AMX's tile registers in ordinary memory, for micro_kernel_amx.h and tile_gemm.h. It
// keeps subnormal numbers, which real tiles take for zero.
#pragma once

#define MEGATRON_KERNEL_ISA emulation

#include <cstdint>
#include <cstring>

#include "kernels/cpu/storage_types.h"
#include "kernels/cpu/tile_gemm.h"

namespace megatron::kernels {

/// Registers have lines of 64 bytes. Lines outside their configuration are not written.
class EmulatedTiles {
 public:
  static void begin() {}
  static void end() {}
  void configure(std::int64_t upper, std::int64_t lower) {
    rows_[0] = upper;
    rows_[1] = lower;
  }
  template <int kHalf>
  static void clear() {
    std::memset(sums_[kHalf], 0, sizeof sums_[kHalf]);
  }
  template <int kHalf>
  static void load_sums(const float* sums, std::int64_t stride) {
    for (std::int64_t i = 0; i < rows_[kHalf]; ++i)
      for (int side = 0; side < 2; ++side)
        std::memcpy(sums_[kHalf][side][i],
                    reinterpret_cast<const char*>(sums) + i * stride + 64 * side, 64);
  }
  template <int kHalf>
  static void load_rows(const char* lines, std::int64_t stride) {
    for (std::int64_t i = 0; i < rows_[kHalf]; ++i)
      std::memcpy(a_[kHalf][i], lines + i * stride, 64);
  }
  template <int kHalf>
  static void load_panel(const char* lines, std::int64_t stride) {
    for (std::int64_t i = 0; i < 16; ++i) std::memcpy(b_[kHalf][i], lines + i * stride, 64);
  }
  template <int kHalf>
  static void multiply() {
    for (int side = 0; side < 2; ++side)
      for (std::int64_t i = 0; i < rows_[kHalf]; ++i)
        for (int pair = 0; pair < 16; ++pair)
          for (int j = 0; j < 16; ++j)
            for (int half = 0; half < 2; ++half)
              sums_[kHalf][side][i][j] +=
                  wide(a_[kHalf][i][2 * pair + half]) * wide(b_[side][pair][2 * j + half]);
  }
  template <int kHalf>
  static void store(float* sums, std::int64_t stride) {
    for (std::int64_t i = 0; i < rows_[kHalf]; ++i)
      for (int side = 0; side < 2; ++side)
        std::memcpy(reinterpret_cast<char*>(sums) + i * stride + 64 * side, sums_[kHalf][side][i],
                    64);
  }

  static void round_rows(const float* sums, std::int64_t rows, std::uint16_t* out,
                         std::int64_t out_stride) {
    for (std::int64_t r = 0; r < rows; ++r, sums += kPanelColumns, out += out_stride) {
      for (std::int64_t c = 0; c < kPanelColumns; ++c) {
        emulation::Bf16 rounded;
        emulation::store(rounded, sums[c]);
        out[c] = rounded.bits;
      }
    }
  }

 private:
  static float wide(std::uint16_t value) {
    const std::uint32_t bits = std::uint32_t{value} << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }
  static inline std::int64_t rows_[2];
  static inline std::uint16_t a_[2][16][32], b_[2][16][32];
  static inline float sums_[2][2][16][16];
};

}  // namespace megatron::kernels
