// Compares activations with their formulas in long double, for every type and ragged sizes, with
// and without gate and bias. Each instruction set of this CPU gives the same bits.
#include "kernels/cpu/activation_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/column_sums.h"
#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(ActivationKernels, activation_kernels, portable,
                         MEGATRON_X86_ISAS(avx2, avx512))

namespace {

constexpr ActivationKind kKinds[] = {ActivationKind::gelu, ActivationKind::gelu_tanh,
                                     ActivationKind::relu, ActivationKind::squared_relu,
                                     ActivationKind::silu, ActivationKind::quick_gelu};
constexpr Type kTypes[] = {Type::f32, Type::f64, Type::bf16, Type::f16};

struct Exact {
  long double value, slope;
};

Exact exact(ActivationKind kind, long double z) {
  const long double pi = std::acos(-1.0L), c = std::sqrt(2 / pi);
  const auto scaled_logistic = [z](long double k) {
    const long double s = 1 / (1 + std::exp(-k * z));
    return Exact{z * s, s + k * z * s * (1 - s)};
  };
  switch (kind) {
    case ActivationKind::gelu: {
      const long double below = std::erfc(-z / std::sqrt(2.0L)) / 2;
      return {z * below, below + z * std::exp(z * z / -2) / std::sqrt(2 * pi)};
    }
    case ActivationKind::gelu_tanh: {
      const long double s =
          1 / (1 + std::exp(-2 * c *
                            (z + 0.044715L * z * z * z)));  // (1 + tanh u) / 2 without cancellation
      return {z * s, s + 2 * z * s * (1 - s) * c * (1 + 3 * 0.044715L * z * z)};
    }
    case ActivationKind::relu:
      return {std::max(z, 0.0L), z > 0 ? 1.0L : 0.0L};
    case ActivationKind::squared_relu:
      return {std::max(z, 0.0L) * std::max(z, 0.0L), 2 * std::max(z, 0.0L)};
    case ActivationKind::silu:
      return scaled_logistic(1);
    case ActivationKind::quick_gelu:
      return scaled_logistic(1.702L);
  }
  return {};
}

struct Case {
  Type type;
  ActivationForm form;
  std::int64_t rows, columns;
  std::size_t width() const { return static_cast<std::size_t>(form.gated ? 2 * columns : columns); }
  std::size_t x_count() const { return static_cast<std::size_t>(rows) * width(); }
  std::size_t y_count() const { return static_cast<std::size_t>(rows * columns); }
  std::string name() const {
    return "kind " + std::to_string(static_cast<int>(form.kind)) + ", type " +
           std::to_string(static_cast<int>(type)) + (form.gated ? ", gated, clamp " : ", clamp ") +
           std::to_string(form.clamp) + ", " + std::to_string(rows) + "x" + std::to_string(columns);
  }
};

/// Returns the forms of a kind. The offset is larger than the clamp, so that up does not cancel.
std::vector<ActivationForm> forms(ActivationKind kind) {
  return {{.kind = kind, .gated = false},
          {.kind = kind, .gated = true},
          {.kind = kind, .gated = true, .clamp = 2.5, .linear_offset = 4}};
}

template <class Run>
void for_each_case(const Run& run) {
  for (const Type type : kTypes) {
    for (const ActivationKind kind : kKinds) {
      for (const ActivationForm& form : forms(kind)) {
        for (const std::int64_t columns : {1, 7, 16, 77})
          run(Case{type, form, columns == 7 ? 70 : 3, columns});
      }
    }
  }
}

struct Inputs {
  explicit Inputs(const Case& c)
      : x(numbers(c.type, c.x_count(), 1, 6)),
        bias(numbers(compute_type(c.type), c.width(), 2, 1)),
        dy(numbers(c.type, c.y_count(), 3)) {}
  Storage x, bias, dy;
};

Storage forward(const Case& c, const Inputs& in, const ActivationKernels& kernels,
                bool row_by_row = false) {
  Storage y(c.type, c.y_count());
  const ActivationArguments arguments{.x = in.x.data(),
                                      .bias = in.bias.data(),
                                      .weights = nullptr,
                                      .y = y.data(),
                                      .type = c.type,
                                      .rows = c.rows,
                                      .columns = c.columns,
                                      .form = c.form};
  for (std::int64_t row = 0; row_by_row && row < c.rows; ++row)
    kernels.forward(arguments, row, row + 1);
  if (!row_by_row) kernels.forward(arguments, 0, c.rows);
  return y;
}

struct Gradients {
  Storage dx, blocks, dbias, y;  ///< y is the result of forward, which backward computes again
};

Gradients backward(const Case& c, const Inputs& in, const ActivationKernels& kernels,
                   bool summed = true) {
  const Type wide = compute_type(c.type);
  const std::int64_t blocks = row_blocks(c.rows);
  Gradients result{{c.type, c.x_count()},
                   {wide, static_cast<std::size_t>(blocks) * c.width()},
                   {wide, c.width()},
                   {c.type, c.y_count()}};
  kernels.backward({.dy = in.dy.data(),
                    .x = in.x.data(),
                    .bias = in.bias.data(),
                    .dx = result.dx.data(),
                    .bias_blocks = summed ? result.blocks.data() : nullptr,
                    .y = summed ? result.y.data() : nullptr,
                    .type = c.type,
                    .rows = c.rows,
                    .columns = c.columns,
                    .form = c.form},
                   0, blocks);
  const auto width = static_cast<std::int64_t>(c.width());
  add_row_blocks({result.blocks.data(), result.dbias.data(), wide, blocks, width}, 0, width);
  return result;
}

/// Returns the size of the argument of the activation's exponential. Its rounding error enters the
/// result that many times.
long double exponent(ActivationKind kind, long double z) {
  if (kind == ActivationKind::gelu) return z * z / 2;
  return std::abs(kind == ActivationKind::gelu_tanh ? 1.5958L * z + 0.0714L * z * z * z
                                                    : 1.702L * z);
}

/// Returns the tolerance of the computing type for a result that contains an exponential.
double units(Type type, ActivationKind kind, long double z) {
  return (type == Type::f64 ? 0x1p-52 : 0x1p-23) * static_cast<double>(8 + 2 * exponent(kind, z));
}

/// Adds to that tolerance one rounding to storage, and what f16 cannot tell from zero.
double tolerance(Type type, double units, long double expected) {
  return (epsilon_of(type) + units) * static_cast<double>(std::abs(expected)) +
         (type == Type::f16 ? 0x1p-25 : 0x1p-126);
}

TEST(ActivationKernels, AgreeWithTheFormulas) {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    const Storage y = forward(c, in, activation_kernels());
    const Gradients got = backward(c, in, activation_kernels());
    std::vector<long double> dbias(c.width(), 0);
    const auto columns = static_cast<std::size_t>(c.columns);
    for (std::size_t i = 0; i < c.y_count(); ++i) {
      const std::size_t row = i / columns, column = i % columns, at = row * c.width() + column;
      const auto z = [&](std::size_t offset) {
        return static_cast<long double>(in.x[at + offset]) + in.bias[column + offset];
      };
      const long double clamp = c.form.clamp, gate = std::min(z(0), clamp),
                        offset = c.form.linear_offset;
      const Exact f = exact(c.form.kind, gate);
      const bool gate_passes = z(0) <= clamp,
                 up_passes = c.form.gated && std::abs(z(columns)) <= clamp;
      const long double up = c.form.gated ? std::clamp(z(columns), -clamp, clamp) + offset : 1,
                        dy = in.dy[i], d = gate_passes ? dy * up * f.slope : 0,
                        d_up = up_passes ? dy * f.value : 0;
      const double u = units(c.type, c.form.kind, gate);
      ASSERT_NEAR(y[i], static_cast<double>(f.value * up), tolerance(c.type, u, f.value * up))
          << c.name() << " at " << z(0);
      // Near its zeros a slope is a difference of parts as large as 1.
      const double slope_units =
          units(c.type, c.form.kind, 0) *
          static_cast<double>(std::abs(dy * up) * std::max(1.0L, std::abs(gate)));
      ASSERT_NEAR(got.dx[at], static_cast<double>(d), tolerance(c.type, u, d) + slope_units)
          << c.name() << " at " << z(0);
      dbias[column] += d;
      if (!c.form.gated) continue;
      ASSERT_NEAR(got.dx[at + columns], static_cast<double>(d_up), tolerance(c.type, u, d_up))
          << c.name() << " at " << z(0);
      dbias[column + columns] += d_up;
    }
    const double sum_tolerance = (c.type == Type::f64 ? 1e-14 : 1e-5) * static_cast<double>(c.rows);
    for (std::size_t k = 0; k < c.width(); ++k)
      ASSERT_NEAR(got.dbias[k], static_cast<double>(dbias[k]), sum_tolerance) << c.name();
  });
}

TEST(ActivationKernels, DependNeitherOnRowsNorOnTheInstructionSet) {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    const Storage y = forward(c, in, activation_kernels());
    const Gradients gradients = backward(c, in, activation_kernels());
    EXPECT_EQ(forward(c, in, activation_kernels(), /*row_by_row=*/true), y) << c.name();
    EXPECT_EQ(gradients.y, y) << c.name();
    EXPECT_EQ(backward(c, in, activation_kernels(), /*summed=*/false).dx, gradients.dx) << c.name();
    if (c.type == Type::f64) return;
    for (const auto& [name, others] : activation_kernels_variants()) {
      EXPECT_EQ(forward(c, in, others), y) << name << c.name();
      EXPECT_EQ(backward(c, in, others).dx, gradients.dx) << name << c.name();
      EXPECT_EQ(backward(c, in, others).dbias, gradients.dbias) << name << c.name();
    }
  });
}

/// relu(gate)·(up + 1) with clamp 7, whose values and gradients are exact. At the bounds gradients
/// pass, as in torch.clamp(), and beyond them they are 0.
TEST(ActivationKernels, ClampsAndPassesGradientsAtTheBounds) {
  constexpr std::size_t kCount = 7;
  const float next = std::nextafter(7.0f, 8.0f), inside = std::nextafter(7.0f, 0.0f);
  const float gates[kCount] = {7, next, inside, 100, 2, 2, 2},
              ups[kCount] = {2, 2, 2, 2, 7, next, -next};
  const double y[kCount] = {21, 21, 3.0 * inside, 21, 16, 16, -12},
               dgate[kCount] = {3, 0, 3, 0, 8, 8, -6}, dup[kCount] = {7, 7, inside, 7, 2, 0, 0};
  for (const Type type : kTypes) {
    if (type == Type::bf16 || type == Type::f16) continue;  // have no number next to 7 this close
    const Case c{type, {ActivationKind::relu, true, 7, 1}, 1, kCount};
    Inputs in(c);
    for (std::size_t i = 0; i < kCount; ++i) {
      in.x.set(i, gates[i]);
      in.x.set(kCount + i, ups[i]);
      in.dy.set(i, 1);
    }
    for (std::size_t i = 0; i < 2 * kCount; ++i) in.bias.set(i, 0);
    for (const auto& [name, kernels] : activation_kernels_variants()) {
      const Storage value = forward(c, in, kernels);
      const Gradients gradients = backward(c, in, kernels);
      for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(value[i], type == Type::f32 ? static_cast<float>(y[i]) : y[i])
            << name << " at " << i;
        EXPECT_EQ(gradients.dx[i], dgate[i]) << name << " at " << i;
        EXPECT_EQ(gradients.dx[kCount + i], dup[i]) << i;
      }
    }
  }
}

/// A clamp leaves what is not a number as it is.
TEST(ActivationKernels, ClampsKeepWhatIsNotANumber) {
  const Case c{Type::f32, {ActivationKind::quick_gelu, true, 7, 1}, 1, 3};
  Inputs in(c);
  in.x.set(0, NAN);
  in.x.set(4, NAN);
  for (const auto& [name, kernels] : activation_kernels_variants()) {
    const Storage y = forward(c, in, kernels);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && !std::isnan(y[2])) << name;
  }
}

TEST(ActivationKernels, KeepWhatIsNotANumber) {
  for (const ActivationKind kind : kKinds) {
    const float x[2] = {NAN, 1}, bias[2] = {0, 0};
    float y[2] = {0, 0};
    activation_kernels().forward({.x = x,
                                  .bias = bias,
                                  .weights = nullptr,
                                  .y = y,
                                  .type = Type::f32,
                                  .rows = 1,
                                  .columns = 2,
                                  .form = {.kind = kind, .gated = false}},
                                 0, 1);
    EXPECT_TRUE(std::isnan(y[0])) << static_cast<int>(kind);
    EXPECT_FALSE(std::isnan(y[1])) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace megatron::kernels
