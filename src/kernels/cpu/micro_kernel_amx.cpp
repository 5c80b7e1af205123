// The AMX micro-kernel. Tests run the same code on emulated tiles where the CPU has none
// (tests/kernels/micro_kernel_amx_test.cpp), and passes_self_test() compares the real tiles with
// known sums before their first use.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/micro_kernel_variants.h"
#include "kernels/cpu/tile_gemm.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {
namespace {

/// Allocation of tile registers: sums in 0–3 (two for each half of the rows), rows in 4 and 5, and
/// the panel in 6 and 7.
class AmxTiles {
 public:
  AmxTiles() : used_(this_thread()) { ++used_.users; }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
  ~AmxTiles() { release(used_); }

  static void begin() { ++this_thread().users; }
  static void end() { release(this_thread()); }

  /// Sets the rows of the two halves. Does nothing when they are set already, as the lower half is
  /// when it has no rows: setting takes longer than a few tiles.
  void configure(std::int64_t upper, std::int64_t lower) {
    if (upper == used_.upper && (lower == used_.lower || lower == 0)) return;
    used_.upper = upper;
    used_.lower = lower;
    struct alignas(64) Configuration {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t line_bytes[16] = {};
      std::uint8_t lines[16] = {};
    } configuration;
    const std::int64_t halves[] = {upper, upper, lower, lower, upper, lower, kTile, kTile};
    for (int tile = 0; tile < 8; ++tile) {
      if (halves[tile] == 0) continue;
      configuration.line_bytes[tile] = kTileBytes;
      configuration.lines[tile] = static_cast<std::uint8_t>(halves[tile]);
    }
    asm volatile("" : : "r"(&configuration) : "memory");  // g++ believes that eight bytes are read
    _tile_loadconfig(&configuration);
  }

  template <int kHalf>
  static void clear() {
    if constexpr (kHalf == 0) {
      _tile_zero(0);
      _tile_zero(1);
    } else {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  template <int kHalf>
  static void load_sums(const float* sums, std::int64_t stride) {
    if constexpr (kHalf == 0) {
      _tile_loadd(0, sums, stride);
      _tile_loadd(1, sums + kTile, stride);
    } else {
      _tile_loadd(2, sums, stride);
      _tile_loadd(3, sums + kTile, stride);
    }
  }
  template <int kHalf>
  static void load_rows(const char* lines, std::int64_t stride) {
    if constexpr (kHalf == 0) {
      _tile_loadd(4, lines, stride);
    } else {
      _tile_loadd(5, lines, stride);
    }
  }
  template <int kHalf>
  static void load_panel(const char* lines, std::int64_t stride) {
    if constexpr (kHalf == 0) {
      _tile_loadd(6, lines, stride);
    } else {
      _tile_loadd(7, lines, stride);
    }
  }
  template <int kHalf>
  static void multiply() {
    if constexpr (kHalf == 0) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    } else {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  template <int kHalf>
  static void store(float* sums, std::int64_t stride) {
    if constexpr (kHalf == 0) {
      _tile_stored(0, sums, stride);
      _tile_stored(1, sums + kTile, stride);
    } else {
      _tile_stored(2, sums, stride);
      _tile_stored(3, sums + kTile, stride);
    }
  }

  /// Rounds rows of kPanelColumns sums to bf16. Numbers too small to be normal become zero, as in
  /// the tiles, and NaN is the one that other kernels store.
  static void round_rows(const float* sums, std::int64_t rows, std::uint16_t* out,
                         std::int64_t out_stride) {
    for (std::int64_t r = 0; r < rows; ++r, sums += kPanelColumns, out += out_stride) {
      const __m512 low = _mm512_loadu_ps(sums), high = _mm512_loadu_ps(sums + 16);
      const __mmask32 is_nan = _mm512_kunpackw(_mm512_cmp_ps_mask(high, high, _CMP_UNORD_Q),
                                               _mm512_cmp_ps_mask(low, low, _CMP_UNORD_Q));
      const auto rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
      const __m512i row = _mm512_mask_set1_epi16(rounded, is_nan, 0x7fc0);
      std::memcpy(out, &row, sizeof row);
    }
  }

 private:
  /// What this thread's registers are configured for.
  struct Use {
    std::int64_t users = 0, upper = -1, lower = -1;
  };
  static Use& this_thread() {
    thread_local Use use;
    return use;
  }
  /// Other code may configure the registers between two uses.
  static void release(Use& use) {
    if (--use.users > 0) return;
    if (use.upper >= 0) _tile_release();
    use = {};
  }

  Use& used_;
};

/// Linux lets a process use the tiles on request (arch_prctl(2)).
bool has_amx_permission() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Multiplies 17 rows by 41 columns, 40 deep, by a call of the micro-kernel (its first 18 columns)
/// and by a unit of a GEMM. The numbers are small and whole, so their sums are exact in any order.
bool amx_passes_self_test(const MicroKernel& micro_kernel) {
  constexpr std::int64_t kRows = 17, kColumns = 41, kDepth = 40, kCallColumns = 18, kLine = 32;
  const auto bf16 = [](std::int64_t value) {
    const float wide = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &wide, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
  };
  std::uint16_t a[kRows * kDepth], b[kDepth * kColumns];
  const auto a_value = [](std::int64_t r, std::int64_t d) { return (3 * r + 5 * d) % 11 - 5; };
  const auto b_value = [](std::int64_t d, std::int64_t c) { return (7 * d + 2 * c) % 13 - 6; };
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t d = 0; d < kDepth; ++d) a[r * kDepth + d] = bf16(a_value(r, d));
  for (std::int64_t d = 0; d < kDepth; ++d)
    for (std::int64_t c = 0; c < kColumns; ++c) b[d * kColumns + c] = bf16(b_value(d, c));
  const auto holds_sums = [&](const float* out, std::int64_t columns) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        std::int64_t sum = 0;
        for (std::int64_t d = 0; d < kDepth; ++d) sum += a_value(r, d) * b_value(d, c);
        if (out[r * columns + c] != static_cast<float>(sum)) return false;
      }
    }
    return true;
  };
  std::uint32_t lines[kRows * kLine], panel[kLine * kPanelColumns];
  float out[kRows * kColumns];
  micro_kernel.copy({a, Type::bf16, 1, kDepth, kDepth, kRows, lines, kLine});
  micro_kernel.pack({b, Type::bf16, kColumns, 1, kDepth, kCallColumns, panel, kPanelColumns});
  micro_kernel.multiply({lines, kLine, 1, panel, out, kCallColumns, kRows, kCallColumns,
                         micro_kernel.steps_of(kDepth), false});
  if (!holds_sums(out, kCallColumns)) return false;
  const GemmArguments gemm{.a = a,
                           .b = b,
                           .type = Type::bf16,
                           .a_row_stride = kDepth,
                           .a_depth_stride = 1,
                           .b_depth_stride = kColumns,
                           .b_column_stride = 1,
                           .out = out,
                           .out_type = Type::f32,
                           .out_stride = kColumns,
                           .bias = nullptr,
                           .m = kRows,
                           .n = kColumns,
                           .k = kDepth,
                           .accumulate = false};
  const GemmPlan plan = plan_tile_gemm(gemm, 1);
  const auto bytes = static_cast<std::size_t>((plan.workspace_bytes + 63) / 64 * 64);
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(64, bytes),
                                                              std::free);
  for (std::int64_t unit = 0; unit < plan.units(); ++unit)
    micro_kernel.run_unit(gemm, plan, unit, workspace.get());
  return holds_sums(out, kColumns);
}

}  // namespace

bool passes_self_test() {
  return has_amx_permission() && amx_passes_self_test(amx_micro_kernel<AmxTiles>());
}

MicroKernel bf16_micro_kernel() { return amx_micro_kernel<AmxTiles>(); }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
