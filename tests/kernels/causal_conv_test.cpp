// Compares the causal convolution, forward and backward, with its formula in float64 for random
// shapes and pieces. Every division of the blocks and every instruction set gives the same bits.
#include "kernels/cpu/causal_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <vector>

#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(CausalConvKernels, causal_conv_kernels, portable,
                         MEGATRON_X86_ISAS(avx2, avx512))

namespace {

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

struct Case {
  Type type = Type::f32;
  bool silu = false, has_bias = false, has_states = false;
  std::int64_t s = 1, b = 1, channels = 1, taps = 1;
  std::vector<RowPiece> pieces;
  std::vector<ConvBlock> blocks;
  std::uint64_t seed = 0;

  std::int64_t width() const { return channels + 3; }  // x is a slice of wider rows
  Type wide() const { return compute_type(type); }
  std::int64_t states() const {
    return static_cast<std::int64_t>(pieces.size()) * channels * (taps - 1);
  }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "seed " << c.seed << ", type " << static_cast<int>(c.type) << ", SiLU " << c.silu
             << ", s " << c.s << ", b " << c.b << ", channels " << c.channels << ", taps " << c.taps
             << ", pieces " << c.pieces.size();
}

Case random_case(std::uint64_t seed, Type type) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  const auto coin = [&] { return random() % 2 == 0; };
  Case c{.type = type,
         .silu = coin(),
         .has_bias = coin(),
         .has_states = coin(),
         .s = up_to(coin() ? 10 : 80),
         .b = up_to(2),
         .channels = up_to(coin() ? 20 : 200),
         .taps = up_to(kConvTaps),
         .pieces = {},
         .blocks = {},
         .seed = seed};
  for (std::int64_t column = 0; column < c.b; ++column) {
    for (std::int64_t row = coin() ? 0 : up_to(3); row < c.s;) {
      const std::int64_t count = std::min(c.s - row, up_to(coin() ? c.s : 3));
      for (std::int64_t begin = 0; begin < count; begin += kConvBlockRows)
        c.blocks.push_back({static_cast<std::int64_t>(c.pieces.size()), begin,
                            std::min(count, begin + kConvBlockRows)});
      c.pieces.push_back({column, row, count, 0});
      row += count + (up_to(4) == 1 ? 1 : 0);
    }
  }
  return c;
}

struct Inputs {
  explicit Inputs(const Case& c)
      : x(numbers(c.type, size(c.s * c.b * c.width()), c.seed + 1, 2)),
        dout(numbers(c.type, size(c.s * c.b * c.channels), c.seed + 2)),
        weight(numbers(c.wide(), size(c.taps * c.channels), c.seed + 3)),
        bias(numbers(c.wide(), size(c.channels), c.seed + 4)),
        states(numbers(c.type, size(c.states()), c.seed + 5)) {}
  Storage x, dout, weight, bias, states;
};

struct Results {
  explicit Results(const Case& c)
      : out(numbers(c.type, size(c.s * c.b * c.channels), 0, 0)),
        states(numbers(c.type, size(c.states()), 0, 0)),
        dx(out),
        sums(numbers(c.wide(), c.blocks.size() * size((c.taps + 1) * c.channels), 0, 0)) {}
  Storage out, states, dx, sums;
  bool operator==(const Results&) const = default;
};

Results run(const Case& c, const Inputs& in, const CausalConvKernels& kernels, std::int64_t share) {
  Results r(c);
  const CausalConvArguments arguments{.type = c.type,
                                      .x = in.x.data(),
                                      .row_stride = c.b * c.width(),
                                      .column_stride = c.width(),
                                      .b = c.b,
                                      .channels = c.channels,
                                      .taps = c.taps,
                                      .silu = c.silu,
                                      .weight = in.weight.data(),
                                      .bias = c.has_bias ? in.bias.data() : nullptr,
                                      .initial_states = c.has_states ? in.states.data() : nullptr,
                                      .pieces = c.pieces.data(),
                                      .blocks = c.blocks.data()};
  const CausalConvForwardArguments forward{arguments, r.out.data(), r.states.data()};
  const CausalConvBackwardArguments backward{arguments, in.dout.data(), r.dx.data(), r.sums.data()};
  const auto blocks = static_cast<std::int64_t>(c.blocks.size());
  for (std::int64_t block = 0; block < blocks; block += share) {
    kernels.forward(forward, block, std::min(blocks, block + share));
    kernels.backward(backward, block, std::min(blocks, block + share));
  }
  return r;
}

/// The formula for one channel of one piece.
class Channel {
 public:
  Channel(const Case& c, const Inputs& in, std::int64_t piece, std::int64_t channel)
      : c_(c), in_(in), piece_(piece), channel_(channel), rows_(c.pieces[size(piece)]) {}

  double input(std::int64_t row) const {
    if (row >= 0)
      return in_
          .x[size((rows_.row + row) * c_.b + rows_.column) * size(c_.width()) + size(channel_)];
    return c_.has_states ? in_.states[state(c_.taps - 1 + row)] : 0;
  }
  double weight(std::int64_t tap) const { return in_.weight[size(tap * c_.channels + channel_)]; }
  double sum(std::int64_t row) const {
    double z = c_.has_bias ? in_.bias[size(channel_)] : 0;
    for (std::int64_t t = 0; t < c_.taps; ++t) z += weight(t) * input(row - (c_.taps - 1) + t);
    return z;
  }
  double out(std::int64_t row) const {
    const double z = sum(row);
    return c_.silu ? z / (1 + std::exp(-z)) : z;
  }
  double dz(std::int64_t row) const {
    const double z = sum(row), s = 1 / (1 + std::exp(-z));
    return in_.dout[place(row)] * (c_.silu ? s * (1 + z * (1 - s)) : 1);
  }
  double dx(std::int64_t row) const {
    double d = 0;
    for (std::int64_t t = 0; t < c_.taps; ++t) {
      const std::int64_t later = row + c_.taps - 1 - t;
      if (later < rows_.count) d += weight(t) * dz(later);
    }
    return d;
  }
  std::size_t place(std::int64_t row) const {
    return size(((rows_.row + row) * c_.b + rows_.column) * c_.channels + channel_);
  }
  std::size_t state(std::int64_t i) const {
    return size((piece_ * c_.channels + channel_) * (c_.taps - 1) + i);
  }

 private:
  const Case& c_;
  const Inputs& in_;
  const std::int64_t piece_, channel_;
  const RowPiece& rows_;
};

void expect_close(double got, double expected, Type type, const char* name, const Case& c) {
  const double slack = c.type == Type::f64 ? 1e-12 : 1e-5;
  ASSERT_NEAR(got, expected, slack + epsilon_of(type) * std::abs(expected)) << name << " of " << c;
}

void check(const Case& c) {
  const Inputs in(c);
  const Results r = run(c, in, causal_conv_kernels(), 2);
  for (std::int64_t piece = 0; piece < static_cast<std::int64_t>(c.pieces.size()); ++piece) {
    const std::int64_t count = c.pieces[size(piece)].count;
    for (std::int64_t k = 0; k < c.channels; ++k) {
      const Channel channel(c, in, piece, k);
      for (std::int64_t row = 0; row < count; ++row) {
        const std::size_t at = channel.place(row);
        expect_close(r.out[at], channel.out(row), c.type, "out", c);
        expect_close(r.dx[at], channel.dx(row), c.type, "dx", c);
      }
      for (std::int64_t i = 0; i < c.taps - 1; ++i)
        ASSERT_EQ(r.states[channel.state(i)], channel.input(count - (c.taps - 1) + i)) << c;
    }
  }
  for (std::size_t number = 0; number < c.blocks.size(); ++number) {
    const ConvBlock& block = c.blocks[number];
    for (std::int64_t k = 0; k < c.channels; ++k) {
      const Channel channel(c, in, block.piece, k);
      for (std::int64_t t = 0; t <= c.taps; ++t) {
        double sum = 0;
        for (std::int64_t row = block.begin; row < block.end; ++row)
          sum += channel.dz(row) * (t < c.taps ? channel.input(row - (c.taps - 1) + t) : 1);
        const std::size_t at = number * size((c.taps + 1) * c.channels) + size(t * c.channels + k);
        expect_close(r.sums[at], sum, c.wide(), "sums", c);
      }
    }
  }
}

TEST(CausalConv, AgreesWithTheFormula) {
  for (const Type type : {Type::f32, Type::f64, Type::bf16, Type::f16}) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      check(random_case(seed, type));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CausalConv, DependsNeitherOnSharesNorOnTheInstructionSet) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = random_case(seed, seed % 3 == 0 ? Type::bf16 : Type::f32);
    const Inputs in(c);
    const Results expected = run(c, in, causal_conv_kernels(), 1000);
    EXPECT_EQ(run(c, in, causal_conv_kernels(), 1), expected) << c;
    for (const Variant<CausalConvKernels>& variant : causal_conv_kernels_variants())
      EXPECT_EQ(run(c, in, variant.kernels, 3), expected) << variant.name << ", " << c;
  }
}

}  // namespace
}  // namespace megatron::kernels
