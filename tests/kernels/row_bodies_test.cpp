// Runs the bodies of the CUDA row kernels on the host, item by item in a shuffled order, as a grid
// might. Dropout, rotary embedding and the norm weight's gradient give the bits of the CPU kernels,
// and norms agree with float64 formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/norm_kernels.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cuda/dropout_body.h"
#include "kernels/cuda/rms_norm_body.h"
#include "kernels/cuda/rotary_body.h"
#include "megatron/base/philox.h"
#include "storage.h"

namespace megatron::kernels {
namespace {

/// Calls run(item) once for every item, in shuffled order.
template <class Run>
void launch(std::int64_t items, const Run& run) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(items));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  for (const std::int64_t item : order) run(item);
}

const std::vector<std::int64_t> kOrdinals{3, (std::int64_t{1} << 40) + 5, 0, 77};

struct DropoutCase {
  std::int64_t rows, columns;
  RowCoordinates coordinates;
  const char* name;
};

/// [s, b, h] from position 5 on. h is not a multiple of four, so rows start inside Philox blocks.
DropoutCase hidden_case(std::int64_t columns) {
  const auto h = static_cast<std::uint64_t>(columns);
  return {7 * 4, columns, {kOrdinals.data(), nullptr, 1, 4, 5 * h, h, 0, 0, true}, "hidden"};
}

/// The same rows at the positions of two chunks.
const std::vector<std::int64_t> kPositions{4, 5, 6, 7, 20, 21, 22};
DropoutCase placed_case(std::int64_t columns) {
  const auto h = static_cast<std::uint64_t>(columns);
  return {7 * 4, columns, {kOrdinals.data(), kPositions.data(), 1, 4, 0, h, 0, 0, true}, "placed"};
}

/// A block of attention probabilities [b, n, q, k], with queries from 6 and keys from 3 of scores
/// [n, 9, total_k].
DropoutCase scores_case(std::int64_t columns) {
  const std::uint64_t total_k = static_cast<std::uint64_t>(columns) + 10;
  return {4 * 3 * 2,
          columns,
          {kOrdinals.data(), nullptr, 3, 2, 6 * total_k + 3, 0, 9 * total_k, total_k, false},
          "scores"};
}

void run_dropout(const DropoutArguments& arguments) {
  with_element_types(arguments.x_type, arguments.out_type, [&]<class X, class Out>() {
    launch(arguments.rows * cuda::blocks_per_row(arguments.columns),
           [&](std::int64_t item) { cuda::dropout_item<X, Out>(arguments, item); });
  });
}

TEST(CudaDropout, GivesTheBitsOfTheCpu) {
  for (const TypePair types :
       {kTypePairs[0], kTypePairs[1], kTypePairs[2], kTypePairs[3], kTypePairs[4], kTypePairs[5],
        TypePair{Type::bf16, Type::f32}, TypePair{Type::f16, Type::f32}}) {
    for (const std::int64_t columns : {1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65, 130}) {
      for (const DropoutCase& test :
           {hidden_case(columns), placed_case(columns), scores_case(columns)}) {
        for (const bool with_residual : {false, true}) {
          const auto count = static_cast<std::size_t>(test.rows * columns);
          const Storage x = numbers(types.a, count, 1), residual = numbers(types.b, count, 2);
          Storage expected(types.b, count), got(types.b, count);
          DropoutArguments arguments{
              .x = x.data(),
              .residual = with_residual ? residual.data() : nullptr,
              .out = expected.data(),
              .x_type = types.a,
              .out_type = types.b,
              .rows = test.rows,
              .columns = columns,
              .coordinates = test.coordinates,
              .rule = {
                  .key = 0x123456789ABCDEFu, .threshold = 0x60000000u, .scale = 1 / (1 - 0.375)}};
          row_kernels().dropout(arguments, 0, test.rows);
          arguments.out = got.data();
          run_dropout(arguments);
          ASSERT_EQ(got, expected)
              << test.name << " of " << columns << " columns, types " << static_cast<int>(types.a)
              << ", " << static_cast<int>(types.b);
        }
      }
    }
  }
}

/// Checks the mask itself against its definition: element e of sample o is kept iff lane e mod 4 of
/// block e / 4 is not below the threshold.
TEST(CudaDropout, FollowsTheCoordinates) {
  const std::int64_t columns = 37, s = 5, b = 4;
  const std::vector<float> ones(static_cast<std::size_t>(s * b * columns), 1.0f);
  std::vector<float> out(ones.size(), -1.0f);
  const std::uint64_t key = megatron::philox_key(1234, "decoder.layers.3.dropout");
  run_dropout({.x = ones.data(),
               .residual = nullptr,
               .out = out.data(),
               .x_type = Type::f32,
               .out_type = Type::f32,
               .rows = s * b,
               .columns = columns,
               .coordinates = {kOrdinals.data(), nullptr, 1, b, 0,
                               static_cast<std::uint64_t>(columns), 0, 0, true},
               .rule = {.key = key, .threshold = 0x40000000u, .scale = 2}});
  for (std::int64_t i = 0; i < s; ++i) {
    for (std::int64_t j = 0; j < b; ++j) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto element = static_cast<std::uint64_t>(i * columns + c);
        const auto draw = megatron::philox_block(
            key, element / 4,
            static_cast<std::uint64_t>(kOrdinals[static_cast<std::size_t>(j)]))[element % 4];
        ASSERT_EQ(out[static_cast<std::size_t>((i * b + j) * columns + c)],
                  draw >= 0x40000000u ? 2.0f : 0.0f)
            << i << ' ' << j << ' ' << c;
      }
    }
  }
}

struct NormCase {
  std::int64_t rows, columns;
};

template <class Run>
void for_each_norm(const Run& run) {
  for (const TypePair types : kTypePairs) {
    for (const NormCase shape : {NormCase{1, 1}, {3, 7}, {70, 64}, {33, 257}, {5, 1500}})
      run(types, shape);
  }
}

/// Runs the body with the teams that the launcher chooses from.
template <class X, class Y>
void run_norm(const RmsNormArguments& a) {
  launch(a.rows, [&](std::int64_t row) {
    if (a.columns <= 1024) return cuda::rms_norm_row<X, Y>(a, row, cuda::SerialTeam<32>{});
    cuda::rms_norm_row<X, Y>(a, row, cuda::SerialTeam<256>{});
  });
}

/// Tolerance for a sum of `columns` numbers in the computing type, and one rounding to storage.
double norm_tolerance(const Storage& stored, std::int64_t columns) {
  return epsilon_of(stored.type()) +
         4 * std::sqrt(static_cast<double>(columns)) * epsilon_of(compute_type(stored.type()));
}

TEST(CudaRmsNorm, AgreesWithTheFormula) {
  for_each_norm([](TypePair types, NormCase shape) {
    const auto count = static_cast<std::size_t>(shape.rows * shape.columns);
    const Storage x = numbers(types.a, count, 3, 2),
                  weight =
                      numbers(compute_type(types.a), static_cast<std::size_t>(shape.columns), 4);
    Storage y(types.b, count), rstd(compute_type(types.a), static_cast<std::size_t>(shape.rows));
    const RmsNormArguments arguments{.x = x.data(),
                                     .weight = weight.data(),
                                     .y = y.data(),
                                     .rstd = rstd.data(),
                                     .x_type = types.a,
                                     .y_type = types.b,
                                     .rows = shape.rows,
                                     .columns = shape.columns,
                                     .epsilon = 1e-5,
                                     .offset = 1};
    with_element_types(types.a, types.b, [&]<class X, class Y>() { run_norm<X, Y>(arguments); });
    for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
      const std::size_t first = row * static_cast<std::size_t>(shape.columns);
      double sum = 0;
      for (std::size_t c = 0; c < weight.size(); ++c) sum += x[first + c] * x[first + c];
      const double scale = 1 / std::sqrt(sum / static_cast<double>(shape.columns) + 1e-5);
      ASSERT_NEAR(rstd[row] / scale, 1, norm_tolerance(rstd, shape.columns));
      for (std::size_t c = 0; c < weight.size(); ++c) {
        const double expected = x[first + c] * scale * (weight[c] + 1);
        ASSERT_NEAR(y[first + c], expected,
                    norm_tolerance(y, shape.columns) * std::max(1.0, std::abs(expected)));
      }
    }
  });
}

TEST(CudaRmsNorm, BackwardAgreesWithTheFormulaAndTheCpu) {
  for_each_norm([](TypePair types, NormCase shape) {
    const auto count = static_cast<std::size_t>(shape.rows * shape.columns),
               columns = static_cast<std::size_t>(shape.columns);
    const Type inner = compute_type(types.a);
    const Storage x = numbers(types.a, count, 5, 2), dy = numbers(types.b, count, 6),
                  weight = numbers(inner, columns, 7);
    Storage rstd(inner, static_cast<std::size_t>(shape.rows)), dx(types.a, count),
        dweight(inner, columns), expected_dweight(inner, columns);
    for (std::size_t row = 0; row < rstd.size(); ++row) {
      double sum = 0;
      for (std::size_t c = 0; c < columns; ++c) sum += x[row * columns + c] * x[row * columns + c];
      rstd.set(row, 1 / std::sqrt(sum / static_cast<double>(columns) + 1e-5));
    }
    RmsNormBackwardArguments arguments{.dy = dy.data(),
                                       .x = x.data(),
                                       .weight = weight.data(),
                                       .rstd = rstd.data(),
                                       .dx = dx.data(),
                                       .dweight = dweight.data(),
                                       .x_type = types.a,
                                       .y_type = types.b,
                                       .rows = shape.rows,
                                       .columns = shape.columns,
                                       .offset = 0.5};
    Storage partial(inner, static_cast<std::size_t>(cuda::weight_blocks(shape.rows)) * columns);
    with_element_types(types.a, types.b, [&]<class X, class Y>() {
      const cuda::WeightGradient weight_call{arguments, partial.data()};
      launch(shape.rows, [&](std::int64_t row) {
        cuda::rms_norm_backward_row<X, Y>(arguments, row, cuda::SerialTeam<256>{});
      });
      launch(static_cast<std::int64_t>(partial.size()),
             [&](std::int64_t item) { cuda::weight_gradient_partial<X, Y>(weight_call, item); });
      launch(shape.columns, [&](std::int64_t c) {
        cuda::weight_gradient_total<cuda::Compute<X>>(weight_call, c);
      });
    });
    Storage blocks(inner, partial.size()), expected_dx(types.a, count);
    norm_kernels().backward({.dy = dy.data(),
                             .x = x.data(),
                             .weight = weight.data(),
                             .rstd = rstd.data(),
                             .dx = expected_dx.data(),
                             .weight_blocks = blocks.data(),
                             .x_type = types.a,
                             .y_type = types.b,
                             .rows = shape.rows,
                             .columns = shape.columns,
                             .offset = 0.5},
                            0, row_blocks(shape.rows));
    add_row_blocks(
        {blocks.data(), expected_dweight.data(), inner, row_blocks(shape.rows), shape.columns}, 0,
        shape.columns);
    ASSERT_EQ(dweight, expected_dweight) << shape.rows << " x " << shape.columns;
    for (std::size_t row = 0; row < rstd.size(); ++row) {
      const std::size_t first = row * columns;
      double dot = 0;
      for (std::size_t c = 0; c < columns; ++c)
        dot += dy[first + c] * (weight[c] + 0.5) * x[first + c];
      for (std::size_t c = 0; c < columns; ++c) {
        const double expected =
            rstd[row] * (dy[first + c] * (weight[c] + 0.5) -
                         x[first + c] * dot * rstd[row] * rstd[row] / static_cast<double>(columns));
        ASSERT_NEAR(dx[first + c], expected,
                    4 * norm_tolerance(dx, shape.columns) * std::max(1.0, std::abs(rstd[row])));
      }
    }
  });
}

TEST(CudaRotary, GivesTheBitsOfTheCpu) {
  constexpr std::int64_t kTokens = 12, kHeads = 3, kHeadDim = 10;
  for (const Type type : {Type::f32, Type::f64, Type::bf16, Type::f16}) {
    for (const std::int64_t rotary_dim : {0, 6, 10}) {
      for (const std::int64_t tokens_per_row : {1, 4}) {
        for (const bool interleaved : {false, true}) {
          for (const double sign : {1.0, -1.0}) {
            const std::int64_t head_stride = kHeadDim + 3, token_stride = kHeads * head_stride + 5;
            const Storage x = numbers(type, static_cast<std::size_t>(kTokens * token_stride), 8);
            const auto table_size =
                static_cast<std::size_t>(kTokens / tokens_per_row * rotary_dim / 2);
            const Storage cos = numbers(compute_type(type), table_size, 9),
                          sin = numbers(compute_type(type), table_size, 10);
            Storage expected(type, kTokens * kHeads * kHeadDim),
                got(type, kTokens * kHeads * kHeadDim);
            RotaryArguments arguments{.x = x.data(),
                                      .cos = cos.data(),
                                      .sin = sin.data(),
                                      .out = expected.data(),
                                      .type = type,
                                      .tokens = kTokens,
                                      .heads = kHeads,
                                      .head_dim = kHeadDim,
                                      .rotary_dim = rotary_dim,
                                      .token_stride = token_stride,
                                      .head_stride = head_stride,
                                      .tokens_per_row = tokens_per_row,
                                      .interleaved = interleaved,
                                      .sign = sign};
            row_kernels().heads({.from = x.data(),
                                 .to = expected.data(),
                                 .from_layout = {token_stride, 0, 0, head_stride, kHeads},
                                 .to_layout = {kHeads * kHeadDim, 0, 0, kHeadDim, kHeads},
                                 .type = type,
                                 .tokens = kTokens,
                                 .samples = 1,
                                 .heads = kHeads,
                                 .head_dim = kHeadDim,
                                 .cos = cos.data(),
                                 .sin = sin.data(),
                                 .rotary_dim = rotary_dim,
                                 .tokens_per_row = tokens_per_row,
                                 .interleaved = interleaved,
                                 .sign = sign},
                                0, kTokens);
            arguments.out = got.data();
            with_element_types(type, type, [&]<class T, class>() {
              launch(kTokens * kHeads * cuda::rotary_items_per_head(arguments),
                     [&](std::int64_t item) { cuda::rotary_item<T>(arguments, item); });
            });
            ASSERT_EQ(got, expected)
                << "rotary_dim " << rotary_dim << ", type " << static_cast<int>(type);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
