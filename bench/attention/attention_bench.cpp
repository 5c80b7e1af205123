// Times causal attention, forward and backward, on q, k and v that lie in one mixed tensor, as a
// projection makes them. bench/suite compares it with PyTorch's scaled_dot_product_attention
// (torch_sdpa.py).
//   attention_bench [--dtype f32|bf16] [--turns N] [--json FILE] [SHAPE ...]
// A SHAPE is BxSxHEADSxGROUPSxCHANNELS, or such a shape and options: 1x8192x12x12x64:window=256.
// Options are sinks, window=KEYS, chunk=KEYS and softcap=CAP, with commas between them. Shapes take
// turns.
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

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
  AttentionOptions options = {};
};

/// Sets an option by its name and value, as in "window=256".
void set_option(Shape& shape, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (name == "sinks" && equals == std::string::npos) {
    shape.options.sinks = at::zeros({shape.n}, at::kFloat).set_requires_grad(true);
    return;
  }
  const int value = bench::parse_count(name, equals < text.size() ? text.substr(equals + 1) : "");
  if (name == "window")
    shape.options.window = {value - 1, 0};
  else if (name == "chunk")
    shape.options.chunk = value;
  else if (name == "softcap")
    shape.options.softcap = value;
  else
    throw std::invalid_argument("not an option of a shape: " + text);
}

Shape shape_of(const std::string& name) {
  Shape shape{.name = name};
  char x = 0;
  std::istringstream in(name);
  if (!(in >> shape.b >> x >> shape.s >> x >> shape.n >> x >> shape.g >> x >> shape.d))
    throw std::invalid_argument("not a shape: " + name);
  shape.options.scale = 1 / std::sqrt(static_cast<double>(shape.d));
  if (in >> x) {
    for (std::string option; std::getline(in, option, ',');) set_option(shape, option);
  }
  return shape;
}

struct Times {
  double forward_ms, backward_ms;
};

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
  const double begin = bench::now_ms();
  const at::Tensor out = core_attention(q, k, v, shape.options).out;
  const double forward = bench::now_ms() - begin;
  const double turn = bench::now_ms();
  out.backward(dout);
  return {forward, bench::now_ms() - turn};
}

/// Returns the medians of the shapes. The first turn is not counted.
std::vector<Times> time_shapes(const std::vector<Shape>& shapes, c10::ScalarType type, int turns) {
  std::vector<std::vector<double>> forward(shapes.size()), backward(shapes.size());
  for (int i = -1; i < turns; ++i) {
    for (std::size_t which = 0; which < shapes.size(); ++which) {
      const Times times = time_once(shapes[which], type);
      if (i < 0) continue;
      forward[which].push_back(times.forward_ms);
      backward[which].push_back(times.backward_ms);
    }
  }
  std::vector<Times> medians;
  for (std::size_t which = 0; which < shapes.size(); ++which)
    medians.push_back({bench::median(forward[which]), bench::median(backward[which])});
  return medians;
}

void run(const std::vector<std::string>& words) {
  use_caching_cpu_allocator();
  const bench::Options options =
      bench::parse_options(words,
                           "attention_bench [--dtype f32|bf16] [--turns N] [--json FILE] [SHAPE "
                           "…], a SHAPE is BxSxHEADSxGROUPSxCHANNELS[:OPTION,…]",
                           {.turns = 5});
  std::vector<Shape> shapes;
  for (const std::string& shape : options.shapes) shapes.push_back(shape_of(shape));
  if (shapes.empty()) shapes = {shape_of("4x256x12x12x64"), shape_of("1x8192x12x12x64")};
  nlohmann::json rows = nlohmann::json::array();
  const std::vector<Times> medians = time_shapes(shapes, options.type(), options.turns);
  for (std::size_t which = 0; which < shapes.size(); ++which) {
    const Shape& shape = shapes[which];
    const Times& times = medians[which];
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
