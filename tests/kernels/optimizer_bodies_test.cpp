// Runs the bodies of the CUDA optimizer kernels on the host. Updates, skipped steps and
// block-scaled states give the bits of the CPU kernels, and statistics agree with long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/optimizer_kernels.h"
#include "kernels/cpu/optimizer_update.h"
#include "kernels/cuda/optimizer_body.h"
#include "storage.h"

namespace megatron::kernels {

MEGATRON_FOR_EACH_ISA(MEGATRON_DECLARE_VARIANT, OptimizerKernels, optimizer_kernels, avx2, avx512)

namespace {

using ChunkTeam = cuda::SerialTeam<cuda::kChunkTeam>;

/// The memory of one parameter, cut into two chunks. The first one has whole blocks, as the
/// optimizer makes them.
struct Memory {
  UpdateTypes types;
  Storage main, weight, grad, state0, state1;
  std::vector<float> scales0, scales1;
  bool has_weight, has_momentum;

  Memory(UpdateTypes t, bool with_weight, bool with_momentum)
      : types(t),
        main(numbers(t.main, kCount, 1, 0.1)),
        weight(t.weight, kCount),
        grad(numbers(t.grad, kCount, 2, 1e-3)),
        state0(t.state[0], kCount),
        state1(t.state[1], kCount),
        scales0(kCount / kStateBlock + 1, 1.0f),
        scales1(scales0),
        has_weight(with_weight),
        has_momentum(with_momentum) {
    for (std::size_t i = 0; i < kCount; ++i) {
      weight.set(i, main[i]);
      state0.set(i, 0);
      state1.set(i, 0);
    }
  }
  Memory(const Memory&) = default;
  bool operator==(const Memory& other) const {
    return main == other.main && weight == other.weight && state0 == other.state0 &&
           state1 == other.state1 && scales0 == other.scales0 && scales1 == other.scales1;
  }

  UpdateChunk chunk(std::int64_t begin, std::int64_t count, std::int32_t group, bool is_decayed) {
    const auto at = [begin](Storage& storage) {
      return static_cast<unsigned char*>(storage.data()) + begin * (storage.type() == Type::f64 ? 8
                                                                    : storage.type() == Type::f32
                                                                        ? 4
                                                                        : 2);
    };
    const auto scale = [begin](Type type, std::vector<float>& scales) {
      return type == Type::f16 ? scales.data() + begin / kStateBlock : nullptr;
    };
    return {.main = at(main),
            .weight = has_weight ? at(weight) : nullptr,
            .grad = at(grad),
            .state = {has_momentum ? at(state0) : nullptr, has_momentum ? at(state1) : nullptr},
            .state_scale = {scale(types.state[0], scales0), scale(types.state[1], scales1)},
            .count = count,
            .slot = group,
            .skip_begin = 0,
            .skip_end = 0,
            .group = group,
            .is_decayed = is_decayed};
  }
  std::vector<UpdateChunk> chunks() {
    return {chunk(0, kFirst, 0, true), chunk(kFirst, kCount - kFirst, 1, false)};
  }

  static constexpr std::int64_t kFirst = 3 * kStateBlock, kCount = kFirst + 101;
};

StepRules rules_of(UpdateRule rule) {
  return {.rule = rule,
          .clip_grad = 0.01,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .momentum = 0.9,
          .dynamic_loss_scale = false};
}

/// Runs a whole step as the launches do, with the chunks in descending order.
void cuda_step(const UpdatePlan& plan, const StepInputs& inputs) {
  for (std::int64_t i = plan.num_chunks - 1; i >= 0; --i) cuda::square_chunk(plan, i, ChunkTeam{});
  for (std::int64_t p = 0; p < plan.table.num_parameters; ++p) cuda::reduce_sum(plan, p);
  cuda::finalize(plan, inputs);
  for (std::int64_t i = plan.num_chunks - 1; i >= 0; --i) {
    if (plan.types.main == Type::f64) {
      cuda::update_chunk<double>(plan, i, ChunkTeam{});
    } else {
      cuda::update_chunk<float>(plan, i, ChunkTeam{});
    }
  }
}

/// Each chunk is a parameter of its own.
constexpr SumSlot kSlots[] = {{kChunkLevel, true}, {kChunkLevel, true}};
constexpr std::int64_t kFirstSlot[] = {0, 1, 2};

/// `partial` holds the sums of chunks, and later those of parameters.
UpdatePlan plan_of(const std::vector<UpdateChunk>& chunks, const Memory& memory, UpdateRule rule,
                   std::vector<double>& partial, StepScalars& scalars) {
  return {.chunks = chunks.data(),
          .num_chunks = static_cast<std::int64_t>(chunks.size()),
          .types = memory.types,
          .rules = rules_of(rule),
          .table = {kSlots, kFirstSlot, 2},
          .sums = partial.data(),
          .parameter_sums = partial.data() + chunks.size(),
          .scalars = &scalars};
}

struct UpdateCase {
  UpdateTypes types;
  bool has_weight;
};

const UpdateCase kCases[] = {
    {{.main = Type::f32, .weight = Type::f32, .grad = Type::f32, .state = {Type::f32, Type::f32}},
     false},
    {{.main = Type::f64, .weight = Type::f64, .grad = Type::f64, .state = {Type::f64, Type::f64}},
     false},
    {{.main = Type::f32, .weight = Type::bf16, .grad = Type::f32, .state = {Type::f32, Type::f32}},
     true},
    {{.main = Type::f32, .weight = Type::f16, .grad = Type::bf16, .state = {Type::f32, Type::f32}},
     true},
    {{.main = Type::f32,
      .weight = Type::bf16,
      .grad = Type::bf16,
      .state = {Type::bf16, Type::bf16}},
     true},
    {{.main = Type::f32, .weight = Type::f16, .grad = Type::f32, .state = {Type::f16, Type::f16}},
     true},
    {{.main = Type::f32, .weight = Type::f32, .grad = Type::f32, .state = {Type::f16, Type::f32}},
     false},
};

TEST(CudaOptimizer, GivesTheBitsOfTheCpu) {
  for (const UpdateCase& test : kCases) {
    for (const UpdateRule rule : {UpdateRule::adamw, UpdateRule::sgd}) {
      for (const bool has_momentum : {true, false}) {
        if (rule == UpdateRule::adamw && !has_momentum) continue;
        Memory expected(test.types, test.has_weight, has_momentum), got = expected;
        auto chunks = got.chunks();
        const auto expected_chunks = expected.chunks();
        std::vector<double> partial(2 * chunks.size());
        StepScalars scalars;
        const UpdatePlan plan = plan_of(chunks, got, rule, partial, scalars);
        for (int step = 0; step < 3; ++step) {
          cuda_step(plan, {.lr = {1e-2, 1e-3}, .weight_decay = 0.1});
          for (const UpdateChunk& chunk : expected_chunks)
            update_chunk(chunk, expected.types, plan.rules, scalars);
          ASSERT_EQ(scalars.applied, 1);
          ASSERT_TRUE(got == expected) << "step " << step << ", rule " << static_cast<int>(rule)
                                       << ", case " << &test - kCases;
        }
        EXPECT_FALSE(got == Memory(test.types, test.has_weight, has_momentum));
      }
    }
  }
}

TEST(Optimizer, EveryInstructionSetGivesTheSameBits) {
  if (!cpu_has_avx512()) GTEST_SKIP() << "needs AVX-512";
  for (const UpdateCase& test : kCases) {
    for (const UpdateRule rule : {UpdateRule::adamw, UpdateRule::sgd}) {
      Memory wide(test.types, test.has_weight, true), narrow = wide;
      const StepScalars scalars{.grad_scale = 0.7,
                                .lr = {1e-2, 1e-3},
                                .weight_decay = 0.1,
                                .bias_correction1 = 0.1,
                                .bias_correction2 = 0.05};
      for (int step = 0; step < 3; ++step) {
        for (const UpdateChunk& chunk : wide.chunks())
          avx512::optimizer_kernels().update(chunk, test.types, rules_of(rule), scalars);
        for (const UpdateChunk& chunk : narrow.chunks())
          avx2::optimizer_kernels().update(chunk, test.types, rules_of(rule), scalars);
        ASSERT_TRUE(wide == narrow) << "step " << step << ", rule " << static_cast<int>(rule)
                                    << ", case " << &test - kCases;
      }
    }
  }
}

TEST(Optimizer, EveryInstructionSetAddsTheSameSquares) {
  if (!cpu_has_avx512()) GTEST_SKIP() << "needs AVX-512";
  constexpr std::int64_t kBlocks = 9;
  const Storage grad = numbers(Type::f32, kBlocks * kStateBlock, 8, 1e-3);
  const auto* values = static_cast<const float*>(grad.data());
  double wide[kBlocks], narrow[kBlocks];
  avx512::optimizer_kernels().block_squares(values, kBlocks, wide);
  avx2::optimizer_kernels().block_squares(values, kBlocks, narrow);
  for (std::int64_t b = 0; b < kBlocks; ++b) {
    long double exact = 0;
    for (std::int64_t i = 0; i < kStateBlock; ++i)
      exact += static_cast<long double>(values[b * kStateBlock + i]) * values[b * kStateBlock + i];
    EXPECT_EQ(wide[b], narrow[b]);
    EXPECT_NEAR(wide[b] / static_cast<double>(exact), 1, 1e-14);
  }
}

TEST(CudaOptimizer, ASkippedStepChangesNothing) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Memory memory(kCases[5].types, true, true);
    memory.grad.set(Memory::kFirst + 7, bad);
    const Memory before = memory;
    auto chunks = memory.chunks();
    std::vector<double> partial(2 * chunks.size());
    StepScalars scalars;
    cuda_step(plan_of(chunks, memory, UpdateRule::adamw, partial, scalars),
              {.lr = {1, 1}, .weight_decay = 0.1});
    EXPECT_EQ(scalars.applied, 0);
    EXPECT_EQ(scalars.first_non_finite, 1);
    EXPECT_EQ(scalars.num_steps, 0);
    EXPECT_TRUE(memory == before);
  }
}

TEST(CudaOptimizer, VetoesAreReadWhereTheyLie) {
  Memory memory(kCases[0].types, false, true);
  const Memory before = memory;
  auto chunks = memory.chunks();
  std::vector<double> partial(2 * chunks.size());
  StepScalars scalars;
  const double found_inf = 1;
  cuda_step(plan_of(chunks, memory, UpdateRule::adamw, partial, scalars),
            {.lr = {1, 1}, .weight_decay = 0.1, .found_inf = &found_inf});
  EXPECT_EQ(scalars.applied, 0);
  EXPECT_TRUE(memory == before);
}

TEST(CudaOptimizer, StatisticsAgreeWithLongDouble) {
  for (const UpdateCase& test : kCases) {
    Memory memory(test.types, test.has_weight, true);
    for (const std::size_t zero : {0, 5, 800}) memory.grad.set(zero, 0);
    auto chunks = memory.chunks();
    std::vector<double> partial(2 * chunks.size());
    StepScalars scalars;
    const UpdatePlan plan = plan_of(chunks, memory, UpdateRule::adamw, partial, scalars);
    cuda_step(plan, {.lr = {0, 0}});
    long double sum = 0;
    for (std::size_t i = 0; i < memory.grad.size(); ++i)
      sum += static_cast<long double>(memory.grad[i]) * static_cast<long double>(memory.grad[i]);
    EXPECT_NEAR(scalars.grad_norm / static_cast<double>(std::sqrt(sum)), 1, 1e-14);
    for (std::int64_t i = 0; i < plan.num_chunks; ++i)
      cuda::count_chunk_zeros(plan, i, ChunkTeam{});
    for (std::int64_t p = 0; p < 2; ++p) cuda::reduce_sum(plan, p);
    cuda::finalize_zeros(plan);
    EXPECT_EQ(scalars.num_zeros, 3);
  }
}

/// The scale is a power of two that brings the largest number of a block into [2¹⁴, 2¹⁵), even when
/// rounding carries it up.
TEST(CudaOptimizer, BlockScalesAreThoseOfTheFormat) {
  for (const float largest : {1.0f, 0.75f, 1e-20f, 1e-44f, 3e38f, 2047.4f / 2048, 2047.6f / 2048}) {
    const float scale = cuda::block_scale(largest);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5f);
    if (scale == 0x1p-126f) continue;  // the smallest scale leaves small blocks below the range
    const float stored = cuda::from_half(cuda::to_half(largest / scale));
    EXPECT_GE(stored, 0x1p14f) << largest;
    EXPECT_LT(stored, 0x1p15f) << largest;
  }
  EXPECT_EQ(cuda::block_scale(0), 1);
  EXPECT_EQ(cuda::block_scale(std::numeric_limits<float>::infinity()), 1);
}

}  // namespace
}  // namespace megatron::kernels
