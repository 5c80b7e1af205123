// The GEMM epilogue, compiled once for each instruction set.
#include "kernels/cpu/gemm_epilogue.h"

#include <cstdint>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

template <class Out, class Bias>
void finish_rows(const GemmEpilogue& r) {
  const auto* bias = static_cast<const Bias*>(r.bias);
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const float* sums = r.sums + row * r.sums_stride;
    auto* out = static_cast<Out*>(r.out) + row * r.out_stride;
    if (bias != nullptr && r.accumulate) {
      for (std::int64_t c = 0; c < r.columns; ++c)
        store(out[c], sums[c] + load(bias[c]) + load(out[c]));
    } else if (bias != nullptr) {
      for (std::int64_t c = 0; c < r.columns; ++c) store(out[c], sums[c] + load(bias[c]));
    } else if (r.accumulate) {
      for (std::int64_t c = 0; c < r.columns; ++c) store(out[c], sums[c] + load(out[c]));
    } else {
      for (std::int64_t c = 0; c < r.columns; ++c) store(out[c], sums[c]);
    }
  }
}

inline void finish(const GemmEpilogue& r) {
  with_type(r.out_type, [&](auto out) {
    with_type(r.bias_type, [&](auto bias) {
      using Out = decltype(out);
      using Bias = decltype(bias);
      if constexpr (!std::is_same_v<Out, double> && !std::is_same_v<Bias, double>)
        finish_rows<Out, Bias>(r);
    });
  });
}

GemmEpilogueKernels gemm_epilogue_kernels() { return {finish}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(GemmEpilogueKernels, gemm_epilogue_kernels)
