// Times the three GEMMs of a linear layer by shape, alternating between our backend and the
// library's. Also measures the limits of the machine: the speed of the micro-kernel in the L1
// cache, and memory bandwidth. Prints one JSON line for each.
//   gemm_bench [--dtype f32|bf16] [--turns N] TOKENS,IN,OUT …     (no shape: those of GPT-2 124M,
//   batch 4 × 256)
// A shape TOKENS,IN,OUT,packed is one of decoding: its forward GEMM reads weights that are packed
// in place, and ones that are not, beside the speed at which a loop reads them from memory. A shape
// TOKENS,IN,OUT,GROUPS compares a grouped GEMM, whose groups have equal numbers of tokens, with one
// dense GEMM of the same operations.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/micro_kernel.h"
#include "megatron/ops/aten_matmul.h"
#include "megatron/ops/cpu_gemm.h"
#include "megatron/training/observability/tensor_memory.h"
#include "program.h"

namespace megatron {
namespace {

struct LinearShape {
  std::int64_t tokens, in, out;
  std::int64_t groups = 0;  ///< of a grouped GEMM
  bool packed = false;      ///< whether to read packed weights, as in decoding
};

template <class Work>
double seconds_of(const Work& work) {
  const double start = bench::now_ms();
  work();
  return 1e-3 * (bench::now_ms() - start);
}

/// Runs out (+)= a·b with both backends in turn.
void time_gemm(const char* role, const LinearShape& shape, int turns, at::Tensor out,
               const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  std::vector<double> own, library;
  for (int turn = -1; turn < turns; ++turn) {
    const double ours = seconds_of([&] { cpu_gemm(out, a, b, {}, accumulate); });
    const double theirs = seconds_of([&] { aten_matmul_out(out, a, b, accumulate); });
    if (turn < 0) continue;
    own.push_back(ours);
    library.push_back(theirs);
  }
  std::printf(
      "{\"gemm\": \"%s\", \"tokens\": %ld, \"in\": %ld, \"out\": %ld, \"flops\": %.0f, "
      "\"own_seconds\": %.9f, \"library_seconds\": %.9f}\n",
      role, shape.tokens, shape.in, shape.out,
      2.0 * static_cast<double>(shape.tokens * shape.in * shape.out), bench::median(own),
      bench::median(library));
  std::fflush(stdout);
}

void time_linear(const LinearShape& shape, c10::ScalarType type, int turns) {
  const auto random = [&](std::int64_t rows, std::int64_t columns) {
    return at::randn({rows, columns}).to(type);
  };
  const at::Tensor x = random(shape.tokens, shape.in), w = random(shape.out, shape.in),
                   dy = random(shape.tokens, shape.out);
  time_gemm("forward", shape, turns, at::zeros({shape.tokens, shape.out}, type), x, w.t(), false);
  time_gemm("input_gradient", shape, turns, at::zeros({shape.tokens, shape.in}, type), dy, w,
            false);
  time_gemm("weight_gradient", shape, turns, at::zeros({shape.out, shape.in}), dy.t(), x, true);
}

/// Runs `grouped` and `dense`, which do the same number of operations, in turn.
template <class Grouped, class Dense>
void compare(const char* role, const LinearShape& shape, int turns, const Grouped& grouped,
             const Dense& dense) {
  std::vector<double> ours, whole;
  for (int turn = -1; turn < turns; ++turn) {
    const double first = seconds_of(grouped), second = seconds_of(dense);
    if (turn < 0) continue;
    ours.push_back(first);
    whole.push_back(second);
  }
  std::printf(
      "{\"gemm\": \"grouped_%s\", \"tokens\": %ld, \"in\": %ld, \"out\": %ld, "
      "\"groups\": %ld, \"flops\": %.0f, \"own_seconds\": %.9f, \"dense_seconds\": %.9f, "
      "\"ratio\": %.3f}\n",
      role, shape.tokens, shape.in, shape.out, shape.groups,
      2.0 * static_cast<double>(shape.tokens * shape.in * shape.out), bench::median(ours),
      bench::median(whole), bench::median(whole) / bench::median(ours));
  std::fflush(stdout);
}

void time_grouped(const LinearShape& shape, c10::ScalarType type, int turns) {
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type); };
  const at::Tensor x = random({shape.tokens, shape.in}), dy = random({shape.tokens, shape.out}),
                   w = random({shape.groups, shape.out, shape.in}),
                   one = random({shape.out, shape.in});
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(shape.groups),
                                       shape.tokens / shape.groups);
  at::Tensor y = at::zeros({shape.tokens, shape.out}, type),
             dx = at::zeros({shape.tokens, shape.in}, type),
             dw = at::zeros({shape.groups, shape.out, shape.in}),
             dw_of_one = at::zeros({shape.out, shape.in});
  compare(
      "forward", shape, turns, [&] { cpu_grouped_gemm(y, x, w.transpose(1, 2), rows, {}); },
      [&] { cpu_gemm(y, x, one.t(), {}, false); });
  compare(
      "input_gradient", shape, turns, [&] { cpu_grouped_gemm(dx, dy, w, rows, {}); },
      [&] { cpu_gemm(dx, dy, one, {}, false); });
  compare(
      "weight_gradient", shape, turns, [&] { cpu_grouped_gemm_over_rows(dw, dy, x, rows, true); },
      [&] { cpu_gemm(dw_of_one, dy.t(), x, {}, true); });
}

/// Runs the micro-kernel on all threads at once, each in its own L1 cache.
void time_peak(c10::ScalarType type) {
  const kernels::MicroKernel& micro_kernel =
      kernels::gemm_micro_kernel(type == c10::kFloat ? kernels::Type::f32 : kernels::Type::bf16);
  constexpr std::int64_t kSteps = 64, kRows = 24, kRepeats = 20000;
  const int threads = at::get_num_threads();
  double best = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const double seconds = seconds_of([&] {
      at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          std::vector<float> a(kRows * kSteps), panel(kernels::kPanelColumns * kSteps),
              out(kRows * kernels::kPanelColumns);
          for (std::int64_t i = 0; i < kRepeats; ++i)
            micro_kernel.multiply({a.data(), kSteps, 1, panel.data(), out.data(),
                                   kernels::kPanelColumns, kRows, kernels::kPanelColumns, kSteps,
                                   false});
        }
      });
    });
    const double each = 2.0 * kRows * kernels::kPanelColumns * kSteps *
                        (micro_kernel.type == kernels::Type::bf16 ? 2 : 1) * kRepeats;
    best = std::max(best, each * threads / seconds);
  }
  std::printf("{\"limit\": \"peak\", \"flops_per_second\": %.0f, \"threads\": %d}\n", best,
              threads);
}

/// Reads memory on all threads, and returns the bytes in a second.
double read_speed(const at::Tensor& memory) {
  const std::int64_t count = static_cast<std::int64_t>(memory.nbytes()) / 4;
  const auto* const numbers = static_cast<const std::int32_t*>(memory.const_data_ptr());
  std::atomic<std::int32_t> sum = 0;
  const double seconds = seconds_of([&] {
    at::parallel_for(0, count, count / at::get_num_threads() + 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       std::int32_t own = 0;
                       for (std::int64_t i = begin; i < end; ++i) own ^= numbers[i];
                       sum ^= own;
                     });
  });
  return 4.0 * static_cast<double>(count) / seconds;
}

/// Multiplies by weights that together fill no cache, unpacked first and then packed in place. Each
/// turn also reads them as a plain loop does.
void time_packed(const LinearShape& shape, c10::ScalarType type, int turns) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 29;
  const std::int64_t count = std::max<std::int64_t>(
      1, kBytes / (shape.in * shape.out * static_cast<std::int64_t>(c10::elementSize(type))));
  const at::Tensor x = at::randn({shape.tokens, shape.in}).to(type),
                   weights = at::randn({1, shape.out, shape.in})
                                 .to(type)
                                 .expand({count, shape.out, shape.in})
                                 .contiguous();
  at::Tensor y = at::zeros({shape.tokens, shape.out}, type);
  std::array<std::vector<double>, 2> speeds, reads;
  for (const bool packs : {false, true}) {
    std::int64_t packed = 0;
    for (std::int64_t i = 0; packs && i < count; ++i) packed = cpu_pack_weight(weights[i]);
    for (int turn = -1; turn < turns; ++turn) {
      const double seconds = seconds_of([&] {
        for (std::int64_t i = 0; i < count; ++i) cpu_gemm(y, x, weights[i].t(), {}, false, packed);
      });
      const double read = read_speed(weights);
      if (turn < 0) continue;
      speeds[packs].push_back(static_cast<double>(weights.nbytes()) / seconds);
      reads[packs].push_back(read);
    }
  }
  std::printf(
      "{\"gemm\": \"decode\", \"tokens\": %ld, \"in\": %ld, \"out\": %ld, "
      "\"unpacked_bytes_per_second\": %.0f, \"packed_bytes_per_second\": %.0f, "
      "\"read_bytes_per_second\": %.0f, \"of_read\": %.3f}\n",
      shape.tokens, shape.in, shape.out, bench::median(speeds[0]), bench::median(speeds[1]),
      bench::median(reads[1]), bench::median(speeds[1]) / bench::median(reads[1]));
  std::fflush(stdout);
}

/// Computes a = 3·a + b over arrays that no cache holds, as an optimizer updates weights: it reads
/// two numbers and writes one. The result changes from second to second with the load of other
/// virtual machines on the same host.
void time_memory() {
  constexpr std::int64_t kCount = std::int64_t{1} << 25;
  std::vector<float> a(kCount, 1.0f), b(kCount, 2.0f);
  double best = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const double seconds = seconds_of([&] {
      at::parallel_for(0, kCount, 1 << 20, [&](std::int64_t begin, std::int64_t end) {
        float* const __restrict to = a.data();
        const float* const __restrict from = b.data();
        for (std::int64_t i = begin; i < end; ++i) to[i] = 3 * to[i] + from[i];
      });
    });
    best = std::max(best, 12.0 * kCount / seconds);
  }
  std::printf("{\"limit\": \"memory\", \"bytes_per_second\": %.0f}\n", best);
}

LinearShape parse(const std::string& text) {
  constexpr std::string_view kPacked = ",packed";
  LinearShape shape{.packed = text.ends_with(kPacked)};
  const int given = std::sscanf(text.c_str(), "%ld,%ld,%ld,%ld", &shape.tokens, &shape.in,
                                &shape.out, &shape.groups);
  if (given >= 3 && shape.tokens > 0 && shape.in > 0 && shape.out > 0 &&
      (given == 3 || (shape.groups > 0 && shape.tokens % shape.groups == 0)))
    return shape;
  throw std::invalid_argument("\"" + text +
                              "\" is no shape: give TOKENS,IN,OUT, TOKENS,IN,OUT,packed, or "
                              "TOKENS,IN,OUT,GROUPS with a multiple of GROUPS as TOKENS");
}

void run(const std::vector<std::string>& words) {
  use_caching_cpu_allocator();
  const at::NoGradGuard no_grad;
  const bench::Options options =
      bench::parse_options(words,
                           "gemm_bench [--dtype f32|bf16] [--turns N] [SHAPE …], a SHAPE is "
                           "TOKENS,IN,OUT[,GROUPS|,packed]");
  std::vector<LinearShape> shapes;
  for (const std::string& shape : options.shapes) shapes.push_back(parse(shape));
  if (shapes.empty())
    for (const char* shape : {"1024,768,2304", "1024,768,768", "1024,768,3072", "1024,3072,768",
                              "1024,768,50257", "1,4096,4096,packed", "4,4096,4096,packed",
                              "32,4096,4096,packed", "1,896,4864,packed", "1,4864,896,packed"})
      shapes.push_back(parse(shape));
  time_peak(options.type());
  time_memory();
  for (const LinearShape& shape : shapes) {
    const auto time = shape.groups > 0 ? time_grouped : shape.packed ? time_packed : time_linear;
    time(shape, options.type(), options.turns);
  }
  time_memory();
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
