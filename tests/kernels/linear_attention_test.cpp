// Compares linear attention, forward and backward, with its recurrence in float64, for random
// shapes, pieces and decays. Every division of the parts and every instruction set gives the same
// bits.
#include "kernels/cpu/linear_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "linear_attention_recurrence.h"
#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(LinearAttentionKernels, linear_attention_kernels, portable,
                         MEGATRON_X86_ISAS(avx2, avx512))

namespace {

using namespace recurrence;

struct Results {
  explicit Results(const Case& c, std::int64_t splits = 1)
      : out(zeros(c.type, c.rows() * c.heads * c.p)),
        states(zeros(c.wide(), static_cast<std::int64_t>(c.pieces.size()) * c.heads * c.n * c.p)),
        dq(zeros(c.wide(), splits * c.rows() * c.groups * c.n)),
        dk(dq),
        dv(out),
        dg(zeros(c.wide(), c.rows() * c.heads)),
        dbeta(dg) {}
  static Storage zeros(Type type, std::int64_t count) { return numbers(type, size(count), 0, 0); }
  Storage out, states, dq, dk, dv, dg, dbeta;
  bool operator==(const Results&) const = default;
};

Results run(const Case& c, const Inputs& in, const LinearAttentionKernels& kernels,
            std::int64_t share, std::int64_t splits = 1) {
  const auto view = [&](std::int64_t first, std::int64_t head) {
    return HeadsView{
        static_cast<const char*>(in.mixed.data()) + first * (c.type == Type::f64   ? 8
                                                             : c.type == Type::f32 ? 4
                                                                                   : 2),
        c.b * c.width(), c.width(), head};
  };
  Results r(c, splits);
  LinearAttentionForwardArguments forward{};
  static_cast<LinearAttentionArguments&>(forward) = {
      .type = c.type,
      .q = view(0, c.n),
      .k = view(c.groups * c.n, c.n),
      .v = view(2 * c.groups * c.n, c.p),
      .g = in.g.data(),
      .beta = c.has_beta ? in.beta.data() : nullptr,
      .s = c.s,
      .b = c.b,
      .groups = c.groups,
      .heads = c.heads,
      .n = c.n,
      .p = c.p,
      .delta_rule = c.delta_rule,
      .normalizes_qk = c.normalizes,
      .q_scale = c.q_scale,
      .pieces = c.pieces.data(),
      .num_pieces = static_cast<std::int64_t>(c.pieces.size()),
      .initial_states = c.has_states ? in.states.data() : nullptr};
  forward.out = r.out.data();
  forward.final_states = r.states.data();
  LinearAttentionBackwardArguments backward{};
  static_cast<LinearAttentionArguments&>(backward) = forward;
  backward.dout = {in.dout.data(), c.b * c.heads * c.p, c.heads * c.p, c.p};
  backward.dq = r.dq.data();
  backward.dk = r.dk.data();
  backward.dv = r.dv.data();
  backward.dg = r.dg.data();
  backward.dbeta = c.has_beta ? r.dbeta.data() : nullptr;
  backward.splits = splits;
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> workspace(
      size(std::max(kernels.forward_workspace(forward), kernels.backward_workspace(backward))) /
      64);
  for (std::int64_t i = 0, parts = forward.num_pieces * c.heads; i < parts; i += share)
    kernels.forward(forward, i, std::min(parts, i + share), workspace.data());
  for (std::int64_t i = 0, parts = forward.num_pieces * c.groups * splits; i < parts; i += share)
    kernels.backward(backward, i, std::min(parts, i + share), workspace.data());
  return r;
}

double largest(const Row& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

/// Allows one rounding of each number to its type, and errors of sums relative to the largest.
void expect_close(const Storage& got, const Row& expected, double tolerance, double terms,
                  const char* name, const Case& c) {
  const double slack = tolerance * std::max(1.0, terms);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], slack + epsilon_of(got.type()) * std::abs(expected[i]))
        << name << " " << i << " of " << c;
  }
}

void check(const Case& c, double tolerance) {
  const Inputs in(c);
  const Recurrence recurrence(c, in);
  const Expected& e = recurrence.result();
  const Results r = run(c, in, linear_attention_kernels(), 2);
  expect_close(r.out, e.out, tolerance, largest(e.out), "out", c);
  expect_close(r.states, e.states, tolerance, largest(e.states), "state", c);
  expect_close(r.dq, e.dq, tolerance, std::max(largest(e.dq), e.row_terms), "dq", c);
  expect_close(r.dk, e.dk, tolerance, std::max(largest(e.dk), e.row_terms), "dk", c);
  expect_close(r.dv, e.dv, tolerance, largest(e.dv), "dv", c);
  const double dg_terms = std::max(largest(e.dg), e.dg_terms);
  expect_close(r.dg, e.dg, tolerance, dg_terms, "dg", c);
  if (c.has_beta) expect_close(r.dbeta, e.dbeta, tolerance, largest(e.dbeta), "dbeta", c);
}

TEST(LinearAttention, AgreesWithTheRecurrence) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    check(random_case(seed, Type::f32), 2e-5);
    if (HasFatalFailure()) return;
  }
}

TEST(LinearAttention, AgreesWithTheRecurrenceInFloat64) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    check(random_case(seed, Type::f64), 1e-12);
    if (HasFatalFailure()) return;
  }
}

TEST(LinearAttention, RoundsHalvesOnce) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    check(random_case(seed, seed % 2 == 0 ? Type::bf16 : Type::f16), 2e-5);
    if (HasFatalFailure()) return;
  }
}

TEST(LinearAttention, DependsNeitherOnSharesNorOnTheInstructionSet) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = random_case(seed, seed % 3 == 0 ? Type::bf16 : Type::f32);
    const Inputs in(c);
    const Results expected = run(c, in, linear_attention_kernels(), 1000);
    EXPECT_EQ(run(c, in, linear_attention_kernels(), 1), expected) << c;
    for (const Variant<LinearAttentionKernels>& variant : linear_attention_kernels_variants())
      EXPECT_EQ(run(c, in, variant.kernels, 3), expected) << variant.name << ", " << c;
  }
}

/// The sums of the parts of the heads of a group are the sums of all of them.
TEST(LinearAttention, SplitsHeadsOfAGroup) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case c = random_case(seed, Type::f64);
    c.heads = c.groups * 5;
    const Inputs in(c);
    const Results whole = run(c, in, linear_attention_kernels(), 1),
                  split = run(c, in, linear_attention_kernels(), 1, /*splits=*/3);
    EXPECT_EQ(split.dv, whole.dv);
    EXPECT_EQ(split.dg, whole.dg);
    for (std::size_t i = 0; i < whole.dq.size(); ++i) {
      double dq = 0, dk = 0;
      for (std::size_t part = 0; part < 3; ++part) {
        dq += split.dq[part * whole.dq.size() + i];
        dk += split.dk[part * whole.dq.size() + i];
      }
      ASSERT_NEAR(dq, whole.dq[i], 1e-10 * std::max(1.0, std::abs(dq))) << c;
      ASSERT_NEAR(dk, whole.dk[i], 1e-10 * std::max(1.0, std::abs(dk))) << c;
    }
  }
}

/// A sequence that is cut at a chunk's border gives the bits of the whole one; a cut elsewhere and
/// single steps give close numbers.
TEST(LinearAttention, ContinuesFromStates) {
  for (const bool delta_rule : {false, true}) {
    for (const std::int64_t cut : {64, 128, 77, 140}) {
      Case whole{.delta_rule = delta_rule,
                 .normalizes = true,
                 .s = 141,
                 .groups = 1,
                 .heads = 2,
                 .n = 24,
                 .p = 17,
                 .decay = 0.1,
                 .pieces = {{0, 0, 141, 0}}};
      const Inputs in(whole);
      const Results expected = run(whole, in, linear_attention_kernels(), 1);
      Case first = whole, second = whole;
      first.pieces = {{0, 0, cut, 0}};
      second.pieces = {{0, cut, whole.s - cut, cut}};
      second.has_states = true;
      const Results before = run(first, in, linear_attention_kernels(), 1);
      Inputs continued = in;
      continued.states = before.states;
      const Results after = run(second, continued, linear_attention_kernels(), 1);
      for (std::size_t i = 0; i < expected.out.size(); ++i) {
        const bool is_first = i < size(cut * whole.heads * whole.p);
        const double got = is_first ? before.out[i] : after.out[i];
        if (cut % 64 == 0 || is_first) {
          ASSERT_EQ(got, expected.out[i]) << cut << ", " << i;
        } else {
          ASSERT_NEAR(got, expected.out[i], 1e-5) << cut << ", " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
