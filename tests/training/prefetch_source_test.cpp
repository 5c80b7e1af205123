#include "megatron/training/feeding/prefetch_source.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Yields increasing numbers and throws at the number `bad`.
class CountingSource : public MicrobatchSource {
 public:
  CountingSource(std::atomic<std::int64_t>& taken, std::int64_t bad) : taken_(taken), bad_(bad) {}
  Microbatch next() override {
    const std::int64_t number = taken_++;
    if (number == bad_)
      throw UserError({"data/text.bin", "ends at sample 3", "make the dataset again"});
    return {.tensors = {{"tokens", at::full({2, 3}, number, at::kLong)}}, .sample_ordinals = {}};
  }

 private:
  std::atomic<std::int64_t>& taken_;
  const std::int64_t bad_;
};

class Prefetch : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<MicrobatchSource> make(std::int64_t bad = -1, c10::Device device = c10::kCPU) {
    return make_prefetch_source(std::make_unique<CountingSource>(taken_, bad),
                                {.device = device, .in_thread = GetParam(), .depth = 3});
  }
  std::atomic<std::int64_t> taken_{0};
};

TEST_P(Prefetch, KeepsTheOrder) {
  const auto source = make();
  for (std::int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(source->next().at("tokens")[1][2].item<std::int64_t>(), i);
}

TEST_P(Prefetch, WorksAheadByItsDepthAndNoFurther) {
  const auto source = make();
  source->next();
  const std::int64_t wanted = GetParam() ? 4 : 1;
  for (int i = 0; i < 1000 && taken_ < wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(taken_, wanted);
}

TEST_P(Prefetch, AnErrorComesAtItsPlaceOfTheOrder) {
  const auto source = make(/*bad=*/3);
  for (int i = 0; i < 3; ++i) source->next();
  try {
    source->next();
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("data/text.bin"));
  }
}

TEST_P(Prefetch, StopsWhileWorkIsUnderWay) {
  for (int i = 0; i < 50; ++i) make()->next();
}

TEST_P(Prefetch, DeliversOnTheDevice) {
  const Microbatch microbatch = make(-1, c10::kMeta)->next();
  EXPECT_TRUE(microbatch.at("tokens").is_meta());
  EXPECT_EQ(microbatch.at("tokens").sizes(), (std::vector<std::int64_t>{2, 3}));
}

INSTANTIATE_TEST_SUITE_P(Threads, Prefetch, testing::Bool(),
                         [](const auto& info) { return info.param ? "beside" : "inline"; });

}  // namespace
}  // namespace megatron
