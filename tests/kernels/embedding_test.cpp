// Compares lookups with sums in float64, and checks that gradients are added in the order of
// tokens.
#include "kernels/cpu/embedding.h"

#include <gtest/gtest.h>

#include "storage.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kFirst = 3, kCount = 5;
const std::vector<std::int64_t> kIds{3, 7, 2, 8, 7, 5, 0, 7}, kPositions{0, 1, 2, 3, 0, 1, 2, 3};

constexpr TypePair kPairs[] = {{Type::f32, Type::f32},   {Type::f64, Type::f64},
                               {Type::bf16, Type::bf16}, {Type::f16, Type::f16},
                               {Type::f32, Type::bf16},  {Type::f32, Type::f16},
                               {Type::bf16, Type::f32}};

TEST(Embedding, AddsWordsAndPositionsWithOneRounding) {
  for (const TypePair types : kPairs) {
    for (const std::int64_t columns : {1, 7, 16, 33, 100}) {
      for (const bool with_positions : {true, false}) {
        const auto width = static_cast<std::size_t>(columns);
        const Storage words = numbers(types.a, kCount * width, 1),
                      positions = numbers(types.a, 4 * width, 2);
        Storage out(types.b, kIds.size() * width);
        const EmbeddingArguments arguments{
            .words = {words.data(), kIds.data(), kFirst, kCount},
            .positions = {with_positions ? positions.data() : nullptr, kPositions.data(), 0, 4},
            .table_type = types.a,
            .out = out.data(),
            .out_type = types.b,
            .columns = columns};
        embedding_kernels().look_up(arguments, 0, 3);
        embedding_kernels().look_up(arguments, 3, static_cast<std::int64_t>(kIds.size()));
        for (std::size_t token = 0; token < kIds.size(); ++token) {
          for (std::size_t c = 0; c < width; ++c) {
            double expected = 0;
            if (kIds[token] >= kFirst && kIds[token] < kFirst + kCount)
              expected = words[static_cast<std::size_t>(kIds[token] - kFirst) * width + c];
            if (with_positions)
              expected += positions[static_cast<std::size_t>(kPositions[token]) * width + c];
            Storage rounded(types.b, 1);
            rounded.set(0, types.a == Type::f64
                               ? expected
                               : static_cast<double>(static_cast<float>(expected)));
            ASSERT_EQ(out[token * width + c], rounded[0]) << token << ' ' << c;
          }
        }
      }
    }
  }
}

TEST(Embedding, GradientsAreAddedInTheOrderOfTokens) {
  for (const TypePair types : kPairs) {
    for (const std::int64_t columns : {1, 16, 33, 100}) {
      const auto width = static_cast<std::size_t>(columns);
      const Storage dy = numbers(types.a, kIds.size() * width, 3);
      Storage gradient = numbers(types.b, kCount * width, 4), expected = gradient;
      const EmbeddingGradientArguments arguments{.dy = dy.data(),
                                                 .dy_type = types.a,
                                                 .gradient = gradient.data(),
                                                 .gradient_type = types.b,
                                                 .ids = kIds.data(),
                                                 .first = kFirst,
                                                 .count = kCount,
                                                 .tokens = static_cast<std::int64_t>(kIds.size()),
                                                 .columns = columns};
      const std::int64_t cut = columns / 3;
      embedding_kernels().add_rows(arguments, cut, columns);
      embedding_kernels().add_rows(arguments, 0, cut);
      for (std::size_t token = 0; token < kIds.size(); ++token) {
        if (kIds[token] < kFirst || kIds[token] >= kFirst + kCount) continue;
        for (std::size_t c = 0; c < width; ++c) {
          const std::size_t at = static_cast<std::size_t>(kIds[token] - kFirst) * width + c;
          const double sum = expected[at] + dy[token * width + c];
          expected.set(at,
                       types.b == Type::f64 ? sum : static_cast<double>(static_cast<float>(sum)));
        }
      }
      ASSERT_EQ(gradient, expected) << columns;
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
