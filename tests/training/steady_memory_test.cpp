// Checks that steps after the first ones reuse the memory that the first ones freed.
#include <gtest/gtest.h>

#include "megatron/training/observability/tensor_memory.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using Flags = std::vector<std::string>;

/// Reads the counts at the start of each step's forward and backward.
class Counts : public TimerListener {
 public:
  std::vector<TensorAllocations> at_step;

 private:
  void on_start(std::string_view timer) override {
    if (timer == "forward-backward") at_step.push_back(tensor_allocations());
  }
  void on_stop(std::string_view /*timer*/) override {}
};

/// A model whose step needs many pages: four layers of width 256 on 2 x 2 sequences of 128.
Flags larger(const Flags& more) {
  Flags all{"--num-layers",
            "4",
            "--hidden-size",
            "256",
            "--num-attention-heads",
            "4",
            "--seq-length",
            "128",
            "--max-position-embeddings",
            "128",
            "--vocab-size",
            "2048",
            "--lr",
            "1e-4",
            "--eval-interval",
            "1000",
            "--eval-iters",
            "0"};
  all.insert(all.end(), more.begin(), more.end());
  return small_run::flags(all);
}

class SteadyMemory : public testing::TestWithParam<Flags> {};

TEST_P(SteadyMemory, ComesFromEarlierSteps) {
  use_caching_cpu_allocator();
  std::ostringstream log;
  Trainer trainer = set_up(read_run(larger(GetParam())), log);
  Counts counts;
  trainer.timers.add_listener(counts);
  const TensorAllocations before = tensor_allocations();
  ASSERT_EQ(train(trainer, log), 0);
  trainer.timers.remove_listener(counts);
  ASSERT_EQ(counts.at_step.size(), 8u);
  EXPECT_GT(counts.at_step[7].tensors, counts.at_step[2].tensors + 100)
      << "steps allocate tensors here";
  for (std::size_t step = 3; step < counts.at_step.size(); ++step)
    EXPECT_EQ(counts.at_step[step].system - counts.at_step[2].system, 0)
        << "before step " << step + 1 << "; the first two took "
        << counts.at_step[2].system - before.system;
}

INSTANTIATE_TEST_SUITE_P(Models, SteadyMemory,
                         testing::Values(Flags{}, Flags{"--bf16"}, Flags{"--fp16"},
                                         Flags{"--bf16", "--swiglu", "--normalization", "RMSNorm",
                                               "--group-query-attention", "--num-query-groups", "2",
                                               "--position-embedding-type", "rope",
                                               "--untie-embeddings-and-output-weights"},
                                         Flags{"--hidden-dropout", "0", "--attention-dropout", "0",
                                               "--disable-bias-linear"}));

TEST(TensorAllocations, CountMemoryThatWasGivenBack) {
  use_caching_cpu_allocator();
  std::ostringstream log;
  Trainer trainer = set_up(read_run(larger({"--train-iters", "4"})), log);
  ASSERT_EQ(train(trainer, log), 0);
  const double held = tensor_memory(c10::kCPU).reserved_bytes;
  empty_tensor_cache();
  EXPECT_LT(tensor_memory(c10::kCPU).reserved_bytes, held - (1 << 20));
  EXPECT_GE(tensor_memory(c10::kCPU).reserved_bytes, tensor_memory(c10::kCPU).allocated_bytes);
}

}  // namespace
}  // namespace megatron
