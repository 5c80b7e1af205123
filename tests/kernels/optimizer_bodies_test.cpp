// Runs the bodies of the CUDA optimizer kernels on the host. Updates, skipped steps and
// block-scaled states give the bits of the CPU kernels, and statistics agree with long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/gradient_norm.h"
#include "kernels/cpu/sgd.h"
#include "kernels/cpu/state_codes.h"
#include "kernels/cuda/adamw_body.h"
#include "kernels/cuda/gradient_norm_body.h"
#include "kernels/cuda/sgd_body.h"
#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(AdamwKernels, adamw_kernels, portable, MEGATRON_X86_ISAS(avx2, avx512))
MEGATRON_DEFINE_VARIANTS(SgdKernels, sgd_kernels, portable, MEGATRON_X86_ISAS(avx2, avx512))
MEGATRON_DEFINE_VARIANTS(GradientNormKernels, gradient_norm_kernels, portable,
                         MEGATRON_X86_ISAS(avx2, avx512))

namespace {

using ChunkTeam = cuda::SerialTeam<cuda::kChunkTeam>;

/// The memory of one parameter, cut into two chunks. The first one has whole blocks, as the
/// optimizer makes them.
struct Memory {
  UpdateTypes types;
  Storage main, weight, grad, state0, state1;
  std::vector<std::uint8_t> bytes0, bytes1;  ///< of 8-bit states
  std::vector<float> scales0, scales1;
  bool has_weight, has_momentum;

  Memory(UpdateTypes t, bool with_weight, bool with_momentum)
      : types(t),
        main(numbers(t.main, kCount, 1, 0.1)),
        weight(t.weight, kCount),
        grad(numbers(t.grad, kCount, 2, 1e-3)),
        state0(t.state[0], kCount),
        state1(t.state[1], kCount),
        bytes0(kCount),
        bytes1(kCount),
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
           state1 == other.state1 && bytes0 == other.bytes0 && bytes1 == other.bytes1 &&
           scales0 == other.scales0 && scales1 == other.scales1;
  }

  UpdateChunk chunk(std::int64_t begin, std::int64_t count, std::int32_t group, bool is_decayed) {
    const auto at = [begin](Storage& storage) {
      return static_cast<unsigned char*>(storage.data()) + begin * (storage.type() == Type::f64 ? 8
                                                                    : storage.type() == Type::f32
                                                                        ? 4
                                                                        : 2);
    };
    const auto scale = [&](int s, std::vector<float>& scales) {
      return types.state[s] == Type::f16 || types.code[s] != nullptr
                 ? scales.data() + begin / kStateBlock
                 : nullptr;
    };
    const auto state = [&](int s, Storage& numbers, std::vector<std::uint8_t>& bytes) -> void* {
      if (!has_momentum) return nullptr;
      return types.code[s] != nullptr ? bytes.data() + begin : at(numbers);
    };
    return {.main = at(main),
            .weight = has_weight ? at(weight) : nullptr,
            .grad = at(grad),
            .state = {state(0, state0, bytes0), state(1, state1, bytes1)},
            .state_scale = {scale(0, scales0), scale(1, scales1)},
            .count = count,
            .group = group,
            .is_decayed = is_decayed};
  }
  std::vector<UpdateChunk> chunks() {
    return {chunk(0, kFirst, 0, true), chunk(kFirst, kCount - kFirst, 1, false)};
  }

  std::vector<GradientChunk> gradient_chunks() {
    std::vector<GradientChunk> result;
    for (const UpdateChunk& chunk : chunks())
      result.push_back({.grad = chunk.grad,
                        .count = chunk.count,
                        .slot = chunk.group,
                        .skip_begin = 0,
                        .skip_end = 0});
    return result;
  }

  static constexpr std::int64_t kFirst = 3 * kStateBlock, kCount = kFirst + 101;
};

enum class Rule { adamw, sgd };
constexpr AdamwRule kAdamw{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
constexpr SgdRule kSgd{.momentum = 0.9};
constexpr StepRules kRules{.clip_grad = 0.01};

/// Each chunk is a parameter of its own.
constexpr SumSlot kSlots[] = {{kChunkLevel, true}, {kChunkLevel, true}};
constexpr std::int64_t kFirstSlot[] = {0, 1, 2};

/// The statistics and the update of a Memory on the device.
struct DeviceStep {
  DeviceStep(Memory& memory, Rule which)
      : rule(which), gradients(memory.gradient_chunks()), chunks(memory.chunks()) {
    statistics = {.chunks = gradients.data(),
                  .num_chunks = static_cast<std::int64_t>(gradients.size()),
                  .grad = memory.types.grad,
                  .table = {kSlots, kFirstSlot, 2},
                  .sums = sums,
                  .parameter_sums = parameter_sums};
    update = {.chunks = chunks.data(),
              .num_chunks = static_cast<std::int64_t>(chunks.size()),
              .types = memory.types,
              .scalars = &scalars};
  }
  DeviceStep(const DeviceStep&) = delete;

  /// Runs a whole step as the launches do, with the chunks in descending order.
  void run(const StepInputs& inputs) {
    for (std::int64_t i = statistics.num_chunks - 1; i >= 0; --i)
      cuda::square_chunk(statistics, i, ChunkTeam{});
    for (std::int64_t p = 0; p < statistics.table.num_parameters; ++p)
      cuda::reduce_sum(statistics, p);
    cuda::finalize(statistics, kRules, inputs, scalars);
    for (std::int64_t i = update.num_chunks - 1; i >= 0; --i) {
      if (update.types.main == Type::f64) {
        update_chunk<double>(i);
      } else {
        update_chunk<float>(i);
      }
    }
  }

  const Rule rule;
  std::vector<GradientChunk> gradients;
  std::vector<UpdateChunk> chunks;
  double sums[2] = {}, parameter_sums[2] = {};
  StepScalars scalars;
  StatisticsPlan statistics{};
  UpdatePlan update{};

 private:
  template <class C>
  void update_chunk(std::int64_t index) const {
    if (rule == Rule::adamw) {
      cuda::update_chunk<C, cuda::Adamw>(update, kAdamw, index, ChunkTeam{});
    } else {
      cuda::update_chunk<C, cuda::Sgd>(update, kSgd, index, ChunkTeam{});
    }
  }
};

/// Updates a chunk on the CPU, with kernels of any instruction set.
void update_on_cpu(const AdamwKernels& adamw, const SgdKernels& sgd, Rule rule,
                   const UpdateChunk& chunk, const UpdateTypes& types, const StepScalars& scalars) {
  if (rule == Rule::adamw) {
    adamw.update(chunk, types, kAdamw, scalars);
  } else {
    sgd.update(chunk, types, kSgd, scalars);
  }
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
    {{.main = Type::f32,
      .weight = Type::bf16,
      .grad = Type::f32,
      .state = {},
      .code = {&dynamic_code(), &unsigned_dynamic_code()}},
     true},
    {{.main = Type::f32,
      .weight = Type::f32,
      .grad = Type::f32,
      .state = {Type::f32, Type::f16},
      .code = {&e4m3_code(false), nullptr}},
     false},
};

TEST(CudaOptimizer, GivesTheBitsOfTheCpu) {
  for (const UpdateCase& test : kCases) {
    for (const Rule rule : {Rule::adamw, Rule::sgd}) {
      for (const bool has_momentum : {true, false}) {
        if (rule == Rule::adamw && !has_momentum) continue;
        Memory expected(test.types, test.has_weight, has_momentum), got = expected;
        const auto expected_chunks = expected.chunks();
        DeviceStep device(got, rule);
        for (int step = 0; step < 3; ++step) {
          device.run({.lr = {1e-2, 1e-3}, .weight_decay = 0.1});
          for (const UpdateChunk& chunk : expected_chunks)
            update_on_cpu(adamw_kernels(), sgd_kernels(), rule, chunk, expected.types,
                          device.scalars);
          ASSERT_EQ(device.scalars.applied, 1);
          ASSERT_TRUE(got == expected) << "step " << step << ", rule " << static_cast<int>(rule)
                                       << ", case " << &test - kCases;
        }
        EXPECT_FALSE(got == Memory(test.types, test.has_weight, has_momentum));
      }
    }
  }
}

TEST(Optimizer, EveryInstructionSetGivesTheSameBits) {
  const auto adamw = adamw_kernels_variants();
  const auto sgd = sgd_kernels_variants();
  for (const UpdateCase& test : kCases) {
    for (const Rule rule : {Rule::adamw, Rule::sgd}) {
      std::vector<Memory> memories(adamw.size(), Memory(test.types, test.has_weight, true));
      for (int step = 0; step < 3; ++step) {
        const StepScalars scalars{
            .num_steps = step + 1.0, .grad_scale = 0.7, .lr = {1e-2, 1e-3}, .weight_decay = 0.1};
        for (std::size_t i = 0; i < memories.size(); ++i) {
          for (const UpdateChunk& chunk : memories[i].chunks())
            update_on_cpu(adamw[i].kernels, sgd[i].kernels, rule, chunk, test.types, scalars);
          ASSERT_TRUE(memories[i] == memories[0])
              << adamw[i].name << ", step " << step << ", rule " << static_cast<int>(rule)
              << ", case " << &test - kCases;
        }
      }
    }
  }
}

TEST(Optimizer, EveryInstructionSetAddsTheSameSquares) {
  constexpr std::int64_t kBlocks = 9;
  for (const Type type : {Type::f32, Type::bf16, Type::f64}) {
    const Storage grad = numbers(type, kBlocks * kStateBlock, 8, 1e-3);
    const GradientChunk chunk{.grad = grad.data(),
                              .count = kBlocks * kStateBlock,
                              .slot = 0,
                              .skip_begin = 300,
                              .skip_end = 310};
    double squares[kBlocks];
    EXPECT_EQ(gradient_norm_kernels().block_squares(chunk, type, squares), kBlocks);
    for (const auto& [name, kernels] : gradient_norm_kernels_variants()) {
      double same[kBlocks];
      EXPECT_EQ(kernels.block_squares(chunk, type, same), kBlocks);
      EXPECT_TRUE(std::equal(same, same + kBlocks, squares)) << name;
    }
    for (std::int64_t b = 0; b < kBlocks; ++b) {
      long double exact = 0;
      for (std::int64_t i = b * kStateBlock; i < (b + 1) * kStateBlock; ++i) {
        if (i < chunk.skip_begin || i >= chunk.skip_end)
          exact += static_cast<long double>(grad[i]) * grad[i];
      }
      EXPECT_NEAR(squares[b] / static_cast<double>(exact), 1, 1e-14);
    }
  }
}

TEST(CudaOptimizer, ASkippedStepChangesNothing) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Memory memory(kCases[5].types, true, true);
    memory.grad.set(Memory::kFirst + 7, bad);
    const Memory before = memory;
    DeviceStep device(memory, Rule::adamw);
    device.run({.lr = {1, 1}, .weight_decay = 0.1});
    EXPECT_EQ(device.scalars.applied, 0);
    EXPECT_EQ(device.scalars.first_non_finite, 1);
    EXPECT_EQ(device.scalars.num_steps, 0);
    EXPECT_TRUE(memory == before);
  }
}

TEST(CudaOptimizer, FoundInfIsReadWhereItLies) {
  Memory memory(kCases[0].types, false, true);
  const Memory before = memory;
  DeviceStep device(memory, Rule::adamw);
  const double found_inf = 1;
  device.run({.lr = {1, 1}, .weight_decay = 0.1, .found_inf = &found_inf});
  EXPECT_EQ(device.scalars.applied, 0);
  EXPECT_TRUE(memory == before);
}

TEST(CudaOptimizer, StatisticsAgreeWithLongDouble) {
  for (const UpdateCase& test : kCases) {
    Memory memory(test.types, test.has_weight, true);
    for (const std::size_t zero : {0, 5, 800}) memory.grad.set(zero, 0);
    DeviceStep device(memory, Rule::adamw);
    device.run({.lr = {0, 0}});
    long double sum = 0;
    for (std::size_t i = 0; i < memory.grad.size(); ++i)
      sum += static_cast<long double>(memory.grad[i]) * static_cast<long double>(memory.grad[i]);
    EXPECT_NEAR(device.scalars.grad_norm / static_cast<double>(std::sqrt(sum)), 1, 1e-14);
    for (std::int64_t i = 0; i < device.statistics.num_chunks; ++i)
      cuda::count_chunk_zeros(device.statistics, i, ChunkTeam{});
    for (std::int64_t p = 0; p < 2; ++p) cuda::reduce_sum(device.statistics, p);
    cuda::finalize_zeros(device.statistics, device.scalars);
    EXPECT_EQ(device.scalars.num_zeros, 3);
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
