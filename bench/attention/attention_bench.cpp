// Times causal attention, forward and backward, on q, k and v that lie in one mixed tensor, as a
// projection makes them. bench/suite compares it with PyTorch's scaled_dot_product_attention
// (torch_sdpa.py).
//   attention_bench [--dtype f32|bf16] [--turns N] [--json FILE] [BxSxHEADSxGROUPSxCHANNELS ...]
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/ops/core_attention.h"
#include "megatron/training/observability/tensor_memory.h"
#include "program.h"

namespace megatron {
namespace {

struct Shape {
  std::string name;
  std::int64_t b, s, n, g, d;
};

Shape shape_of(const std::string& name) {
  Shape shape{.name = name};
  char x = 0;
  std::istringstream in(name);
  if (!(in >> shape.b >> x >> shape.s >> x >> shape.n >> x >> shape.g >> x >> shape.d))
    throw std::invalid_argument("not a shape: " + name);
  return shape;
}

struct Times {
  double forward_ms, backward_ms;
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

Times time_once(const Shape& shape, c10::ScalarType type) {
  const std::int64_t r = shape.n / shape.g;
  const auto [b, s, g, d] = std::array{shape.b, shape.s, shape.g, shape.d};
  const at::Tensor mixed = at::randn({s, b, g * (r + 2) * d}, at::kFloat).to(type);
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    return mixed.narrow(2, first * d, heads * d)
        .view({s, b, heads, d})
        .detach()
        .set_requires_grad(true);
  };
  const at::Tensor q = part(0, shape.n), k = part(shape.n, g), v = part(shape.n + g, g),
                   dout = at::ones({s, b, shape.n * d}, type);
  AttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<double>(d));
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor out = core_attention(q, k, v, options).out;
  const double forward = milliseconds_since(begin);
  const auto turn = std::chrono::steady_clock::now();
  out.backward(dout);
  return {forward, milliseconds_since(turn)};
}

/// Returns medians. The first call is not counted.
Times time_shape(const Shape& shape, c10::ScalarType type, int turns) {
  std::vector<double> forward, backward;
  for (int i = -1; i < turns; ++i) {
    const Times times = time_once(shape, type);
    if (i < 0) continue;
    forward.push_back(times.forward_ms);
    backward.push_back(times.backward_ms);
  }
  return {bench::median(forward), bench::median(backward)};
}

void run(const std::vector<std::string>& words) {
  use_caching_cpu_allocator();
  const bench::Options options =
      bench::parse_options(words,
                           "attention_bench [--dtype f32|bf16] [--turns N] [--json FILE] [SHAPE "
                           "…], a SHAPE is BxSxHEADSxGROUPSxCHANNELS",
                           {.turns = 5});
  std::vector<Shape> shapes;
  for (const std::string& shape : options.shapes) shapes.push_back(shape_of(shape));
  if (shapes.empty()) shapes = {shape_of("4x256x12x12x64"), shape_of("1x8192x12x12x64")};
  nlohmann::json rows = nlohmann::json::array();
  for (const Shape& shape : shapes) {
    const Times times = time_shape(shape, options.type(), options.turns);
    std::printf("%-20s %-5s forward %9.2f ms   backward %9.2f ms\n", shape.name.c_str(),
                options.dtype.c_str(), times.forward_ms, times.backward_ms);
    rows.push_back({{"shape", shape.name},
                    {"dtype", options.dtype},
                    {"forward_ms", times.forward_ms},
                    {"backward_ms", times.backward_ms}});
  }
  if (!options.json.empty()) bench::write(options.json, rows.dump(1));
}

}  // namespace
}  // namespace megatron

int main(int count, char** words) { return megatron::bench::run_main(count, words, megatron::run); }
