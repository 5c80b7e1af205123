#include "megatron/ops/gemm_backend.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <string>

#include "kernels/cpu/cpu_features.h"
#include "megatron/base/error.h"
#include "megatron/base/tuning_cache.h"
#include "megatron/ops/aten_matmul.h"
#include "megatron/ops/cpu_gemm.h"

namespace megatron {
namespace {

constexpr double kMargin = 1.25;
constexpr int kTurns = 5;
constexpr std::int64_t kTokens = 256, kIn = 512, kOut = 768;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs the three GEMMs of a linear layer: y = x·Wᵀ, dx = dy·W, dW += dyᵀ·x.
template <class Gemm>
void all_gemms(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy, at::Tensor& dx,
               at::Tensor& dw, at::Tensor& y, Gemm gemm) {
  gemm(y, x, w.t(), false);
  gemm(dx, dy, w, false);
  gemm(dw, dy.t(), x, true);
}

std::string measure(c10::ScalarType type) {
  const at::NoGradGuard no_grad;
  const auto make = [&](std::int64_t rows, std::int64_t columns, c10::ScalarType of) {
    return at::full({rows, columns}, 1.0, of);
  };
  const at::Tensor x = make(kTokens, kIn, type), w = make(kOut, kIn, type),
                   dy = make(kTokens, kOut, type);
  at::Tensor y = make(kTokens, kOut, type), dx = make(kTokens, kIn, type),
             dw = make(kOut, kIn, c10::kFloat);
  std::array<double, 2> best{std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::infinity()};
  for (int turn = 0; turn <= kTurns; ++turn) {
    const double own = seconds_of([&] {
      all_gemms(x, w, dy, dx, dw, y, [](auto& out, const auto& a, const auto& b, bool more) {
        cpu_gemm(out, a, b, {}, more);
      });
    });
    const double library = seconds_of([&] {
      all_gemms(x, w, dy, dx, dw, y, [](auto& out, const auto& a, const auto& b, bool more) {
        aten_matmul_out(out, a, b, more);
      });
    });
    if (turn > 0)
      best = {std::min(best[0], own), std::min(best[1], library)};  // the first iteration warms up
  }
  return best[0] > kMargin * best[1] ? "library" : "own";
}

GemmBackend choose(c10::ScalarType type) {
  if (!aten_gemm_is_candidate(type)) return GemmBackend::own;
  if (at::globalContext().deterministicAlgorithms())
    return type == c10::kBFloat16 && kernels::cpu_has_amx() ? GemmBackend::aten : GemmBackend::own;
  const std::string choice = cached_measurement(std::string("gemm-backend-") + c10::toString(type),
                                                [&] { return measure(type); });
  return choice == "library" ? GemmBackend::aten : GemmBackend::own;
}

}  // namespace

GemmBackend gemm_backend(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat: {
      static const GemmBackend maker = choose(type);
      return maker;
    }
    case c10::kBFloat16: {
      static const GemmBackend maker = choose(type);
      return maker;
    }
    case c10::kHalf: {
      static const GemmBackend maker = choose(type);
      return maker;
    }
    default:
      throw InternalError(std::string("no GEMM backend for ") + c10::toString(type));
  }
}

bool uses_own_gemm(c10::ScalarType type) {
  return (type == c10::kFloat || c10::isReducedFloatingType(type)) &&
         gemm_backend(type) == GemmBackend::own;
}

}  // namespace megatron
