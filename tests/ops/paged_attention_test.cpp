// Runs the bodies of the CUDA kernels for paged caches on the host, item by item in a shuffled
// order, as a grid might, behind the function that launches them on a device. The result is that of
// attention to all keys in one tensor, by ATen in float64.
#include "megatron/ops/paged_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/paged_attention_body.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

using kernels::PagedAttentionArguments;
using Team = kernels::cuda::SerialTeam<kernels::cuda::kAttentionTeam>;

/// Calls run(item) once for every item, in shuffled order.
template <class Run>
void launch(std::int64_t items, const Run& run) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(items));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  for (const std::int64_t item : order) run(item);
}

/// Calls use.operator()<T>() with the bodies' element type.
template <class Use>
void with_type(kernels::Type type, const Use& use) {
  switch (type) {
    case kernels::Type::f32:
      return use.template operator()<float>();
    case kernels::Type::f64:
      return use.template operator()<double>();
    case kernels::Type::bf16:
      return use.template operator()<kernels::cuda::Bf16>();
    case kernels::Type::f16:
      return use.template operator()<kernels::cuda::Half>();
  }
}

constexpr kernels::RowOperations kOnHost{
    .dropout = nullptr,
    .rms_norm = nullptr,
    .rms_norm_backward = nullptr,
    .rotary = nullptr,
    .append_to_cache =
        [](const PagedAttentionArguments& a) {
          with_type(a.type, [&]<class T>() {
            launch(a.num_rows * a.g * a.kept,
                   [&](std::int64_t item) { kernels::cuda::append_item<T>(a, item); });
          });
        },
    .paged_attention =
        [](const PagedAttentionArguments& a) {
          with_type(a.type, [&]<class T>() {
            launch(a.num_rows * a.n * a.parts, [&](std::int64_t item) {
              kernels::cuda::paged_attention_part<T>(a, item, Team{});
            });
            launch(a.num_rows * a.n * a.dv,
                   [&](std::int64_t item) { kernels::cuda::paged_attention_total<T>(a, item); });
          });
        }};

struct Shape {
  std::int64_t n = 4, g = 2, d = 24, dv = 40, samples = 1;
  bool is_latent = false;  ///< values are the first dv channels of keys
  c10::ScalarType type = at::kFloat;
};

/// A sequence whose keys and values a cache gets in pieces.
struct Sequence {
  Sequence(const Shape& shape, std::int64_t length, int seed) {
    const auto make = [&](std::int64_t heads, std::int64_t channels, double pace) {
      // Longer rows than heads need, as a mixed projection makes them.
      return at::sin(at::arange(length * shape.samples * (heads * channels + 3), at::kDouble)
                         .add(seed)
                         .mul(pace))
          .mul(2)
          .view({length, shape.samples, -1})
          .to(shape.type)
          .narrow(2, 0, heads * channels)
          .unflatten(2, {heads, channels});
    };
    inputs = {make(shape.n, shape.d, 0.37), make(shape.g, shape.d, 0.91), {}};
    inputs.v = shape.is_latent ? inputs.k.narrow(3, 0, shape.dv) : make(shape.g, shape.dv, 1.73);
  }
  AttentionInputs inputs;
  std::int64_t length = 0;  ///< cached
  std::vector<std::int32_t> numbers = {};
};

/// A cache with sequences of one layer.
class Cache {
 public:
  Cache(const Shape& shape, std::int64_t sequences, std::int64_t length)
      : shape_(shape), blocks_(size_of(shape), 1 << 20) {
    std::vector<std::int32_t> numbers(
        static_cast<std::size_t>(sequences * ((length + kBlockPositions - 1) / kBlockPositions)));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937(11));
    if (!numbers.empty()) blocks_.reach(static_cast<std::int32_t>(numbers.size()) - 1);
    // What no token has filled must not be read: it would show as NaN.
    for (const std::int32_t number : numbers) blocks_.block(number).fill_(0xFF);
    const std::size_t each = numbers.size() / static_cast<std::size_t>(sequences);
    for (std::int64_t i = 0; i < sequences; ++i) {
      sequences_.emplace_back(shape, length, static_cast<int>(i));
      const auto first = numbers.begin() + i * static_cast<std::int64_t>(each);
      sequences_.back().numbers.assign(first, first + static_cast<std::int64_t>(each));
    }
  }

  std::vector<Sequence>& sequences() { return sequences_; }
  LayerBlocks& blocks() { return blocks_; }

  /// Runs the next `counts` tokens of the sequences as a pass, and checks the result. Behind those
  /// of a sequence are two rows that belong to none.
  void check(const std::vector<std::int64_t>& counts, AttentionOptions options) {
    constexpr std::int64_t kGap = 2;
    AttentionInputs pass;
    std::vector<PackedSequence> parts;
    std::vector<at::Tensor> q, k, v;
    std::int64_t row = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      Sequence& one = sequences_[i];
      const std::int64_t count = counts[i] + kGap;
      const auto rows = [&](const at::Tensor& x) {
        return at::cat({x.narrow(0, one.length, counts[i]), x.narrow(0, 0, kGap)});
      };
      q.push_back(rows(one.inputs.q));
      k.push_back(rows(one.inputs.k));
      v.push_back(rows(one.inputs.v));
      parts.push_back({row, counts[i], one.length, &blocks_, one.numbers.data()});
      row += count;
    }
    pass = {at::cat(q), at::cat(k), shape_.is_latent ? at::Tensor() : at::cat(v)};
    if (shape_.is_latent) pass.v = pass.k.narrow(3, 0, shape_.dv);
    const at::Tensor out = paged_attention(pass, options, parts, kOnHost);
    ASSERT_EQ(out.scalar_type(), shape_.type);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      Sequence& one = sequences_[i];
      const std::int64_t end = one.length + counts[i];
      options.q_start = one.length;
      const auto seen = [&](const at::Tensor& x) { return x.narrow(0, 0, end).to(at::kDouble); };
      const at::Tensor
          expected = core_attention(seen(one.inputs.q).narrow(0, one.length, counts[i]),
                                    seen(one.inputs.k), seen(one.inputs.v), options)
                         .out,
          error = (out.narrow(0, parts[i].first_row, counts[i]).to(at::kDouble) - expected).abs();
      // Values are below 2. Long sequences come from core_attention(), whose kernels for the CPU
      // round probabilities to bfloat16.
      const double rounding = shape_.type == at::kBFloat16 ? 0x1p-7
                              : shape_.type == at::kHalf   ? 0x1p-10
                              : shape_.type == at::kFloat  ? 2e-5
                                                           : 1e-12;
      EXPECT_LE(error.numel() == 0 ? 0 : error.max().item<double>(), rounding)
          << "tokens " << one.length << " to " << end << " of sequence " << i << ", n " << shape_.n
          << ", g " << shape_.g << ", d " << shape_.d << ", dv " << shape_.dv << ", samples "
          << shape_.samples << ", " << shape_.type;
      one.length = end;
    }
  }

 private:
  static BlockSize size_of(const Shape& shape) {
    const std::int64_t kept =
        shape.samples * shape.g * (shape.is_latent ? shape.d : shape.d + shape.dv);
    return {
        .bytes = kBlockPositions * kept * static_cast<std::int64_t>(c10::elementSize(shape.type)),
        .elements_per_token = kept};
  }

  Shape shape_;
  LayerBlocks blocks_;
  std::vector<Sequence> sequences_;
};

constexpr c10::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

TEST(PagedAttention, AgreesAtTheBordersOfBlocksAndParts) {
  for (const auto type : kTypes) {
    Cache cache({.n = 2, .g = 1, .d = 8, .dv = 8, .type = type}, 3, 2200);
    const AttentionOptions options{.scale = 0.4};
    for (const auto& counts : std::vector<std::vector<std::int64_t>>{{1, 128, 129},
                                                                     {1, 1, 1},
                                                                     {16, 126, 126},
                                                                     {110, 1, 1},
                                                                     {895, 766, 767},
                                                                     {1, 1, 1},
                                                                     {1, 2, 1},
                                                                     {1020, 1000, 1024},
                                                                     {1, 25, 1}})
      cache.check(counts, options);
  }
}

AttentionOptions random_options(std::mt19937& random, std::int64_t heads) {
  const auto below = [&](std::uint32_t count) {
    return static_cast<std::int64_t>(random() % count);
  };
  AttentionOptions options{.scale = 0.1 + 0.1 * static_cast<double>(below(4))};
  if (below(3) == 0) options.window = {below(300), 0};
  if (below(6) == 0) options.causal = false, options.window = {below(200) - 1, below(50) - 1};
  if (below(6) == 0) options.chunk = 1 + below(200);
  if (below(3) == 0) options.softcap = 5;
  if (below(2) == 0) options.sinks = at::sin(at::arange(heads, at::kFloat)).mul(3);
  if (below(4) == 0) options.alibi_slopes = at::sin(at::arange(heads, at::kFloat)).mul(0.05);
  return options;
}

TEST(PagedAttention, AgreesOnRandomShapes) {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t count) {
    return static_cast<std::int64_t>(random() % count);
  };
  for (int i = 0; i < 40; ++i) {
    Shape shape{.g = 1 + below(3),
                .d = 1 + below(40),
                .samples = below(4) == 0 ? 2 : 1,
                .is_latent = below(3) == 0,
                .type = kTypes[i % 4]};
    if (below(8) == 0) shape.d += 600;
    shape.n = shape.g * (1 + below(5));
    shape.dv = shape.is_latent ? 1 + below(static_cast<std::uint32_t>(shape.d)) : 1 + below(200);
    const AttentionOptions options = random_options(random, shape.n);
    const std::int64_t sequences = 1 + below(5);
    Cache cache(shape, sequences, 500);
    for (int pass = 0; pass < 5; ++pass) {
      std::vector<std::int64_t> counts;
      for (std::int64_t s = 0; s < sequences; ++s)
        counts.push_back(below(2) == 0 ? 1 : 1 + below(90));
      cache.check(counts, options);
    }
  }
}

TEST(PagedAttention, RowsDoNotDependOnCutsAndOnOthers) {
  const AttentionOptions options{.scale = 0.3};
  for (const auto type : kTypes) {
    const Shape shape{.type = type};
    const Sequence text(shape, 1300, 1);
    const auto rows = [&](std::int64_t begin, std::int64_t count) -> AttentionInputs {
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, count); };
      return {part(text.inputs.q), part(text.inputs.k), part(text.inputs.v)};
    };
    Cache whole(shape, 1, 1300), pieces(shape, 1, 1300);
    const auto run = [&](LayerBlocks& blocks, const std::vector<std::int32_t>& numbers,
                         std::int64_t begin, std::int64_t count) {
      const std::vector<PackedSequence> one{{0, count, begin, &blocks, numbers.data()}};
      return paged_attention(rows(begin, count), options, one, kOnHost);
    };
    run(whole.blocks(), whole.sequences()[0].numbers, 0, 3);
    const at::Tensor expected = run(whole.blocks(), whole.sequences()[0].numbers, 3, 1297);
    std::vector<at::Tensor> parts;
    std::int64_t begin = 3;
    run(pieces.blocks(), pieces.sequences()[0].numbers, 0, begin);
    for (const std::int64_t count : {1, 126, 500, 2, 668}) {
      parts.push_back(run(pieces.blocks(), pieces.sequences()[0].numbers, begin, count));
      begin += count;
    }
    EXPECT_TRUE(at::equal(at::cat(parts), expected)) << type;
  }
}

TEST(PagedAttention, DividesRowsThatFillTheWorkspace) {
  Cache cache({.n = 16, .g = 1, .d = 4, .dv = 1000}, 2, 340);
  cache.check({10, 10}, {.window = {3, 0}});
  cache.check({30, 300}, {.window = {3, 0}});
}

TEST(PagedAttention, OnlyAppendsWithoutQueries) {
  const Shape shape{.type = at::kBFloat16};
  const AttentionOptions options{.scale = 0.3};
  Cache cache(shape, 1, 400);
  Sequence& text = cache.sequences()[0];
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, 0, 300); };
  const std::vector<PackedSequence> rows{{0, 300, 0, &cache.blocks(), text.numbers.data()}};
  const at::Tensor none =
      paged_attention({{}, part(text.inputs.k), part(text.inputs.v)}, {}, rows, kOnHost);
  EXPECT_EQ(none.numel(), 0);
  text.length = 300;
  cache.check({50}, options);
}

TEST(PagedAttention, QueriesMayBeThoseOfSomeRows) {
  const AttentionOptions options{.scale = 0.3};
  Cache cache({}, 1, 400);
  const auto& [inputs, length, numbers] = cache.sequences()[0];
  const auto run = [&](const at::Tensor& q, const std::vector<PackedSequence>& sequences) {
    return paged_attention({q, inputs.k, inputs.v}, options, sequences, kOnHost);
  };
  const PackedSequence whole{0, 400, 0, &cache.blocks(), numbers.data()};
  run({}, {whole});
  // Two pieces of the sequence, in rows of their own.
  PackedSequence first = whole, second = whole;
  first.is_appended = second.is_appended = true;
  first.count = 100;
  second.first_row = 100, second.count = 50, second.start = 350;
  const at::Tensor q = at::cat({inputs.q.narrow(0, 0, 100), inputs.q.narrow(0, 350, 50)}),
                   out = run(q, {first, second}),
                   expected = core_attention(inputs.q, inputs.k, inputs.v, options).out;
  EXPECT_LE((out.narrow(0, 0, 100) - expected.narrow(0, 0, 100)).abs().max().item<double>(), 2e-5);
  EXPECT_LE((out.narrow(0, 100, 50) - expected.narrow(0, 350, 50)).abs().max().item<double>(),
            2e-5);
}

TEST(PagedAttention, RefusesWhatTheKernelsCannotCompute) {
  Cache cache({.n = 1, .g = 1, .d = 1025, .dv = 8}, 1, 10);
  EXPECT_THROW(cache.check({1}, {}), InternalError);
}

}  // namespace
}  // namespace megatron
