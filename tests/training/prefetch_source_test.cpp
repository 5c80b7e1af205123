#include "megatron/training/feeding/prefetch_source.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
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

/// Notes how many microbatches at most were taken beyond those asked for.
class LeadSource : public MicrobatchSource {
 public:
  LeadSource(std::atomic<std::int64_t>& asked, std::atomic<std::int64_t>& taken,
             std::atomic<std::int64_t>& lead)
      : asked_(asked), taken_(taken), lead_(lead) {}
  Microbatch next() override {
    lead_ = std::max(lead_.load(), taken_ + 1 - asked_);
    ++taken_;
    return {};
  }

 private:
  std::atomic<std::int64_t>&asked_, &taken_, &lead_;
};

TEST_P(Prefetch, WorksAheadByItsDepthAndNoFurther) {
  const std::int64_t depth = GetParam() ? 3 : 0;
  std::atomic<std::int64_t> asked{0}, lead{0};
  const auto source =
      make_prefetch_source(std::make_unique<LeadSource>(asked, taken_, lead),
                           {.device = c10::kCPU, .in_thread = GetParam(), .depth = 3});
  for (int i = 0; i < 100; ++i) {
    ++asked;
    source->next();
    while (taken_ < asked + depth) std::this_thread::yield();  // it does get there
  }
  EXPECT_LE(lead, depth);
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

/// Gives one microbatch; every further one waits until `is_open`.
class GatedSource : public MicrobatchSource {
 public:
  struct State {
    std::atomic<bool> is_open{false}, is_destroyed{false}, was_destroyed_at_work{false};
    std::atomic<int> taken{0}, at_work{0};
  };
  explicit GatedSource(State& state) : state_(state) {}
  ~GatedSource() override {
    state_.was_destroyed_at_work = state_.at_work > 0;
    state_.is_destroyed = true;
    state_.is_destroyed.notify_all();
  }
  Microbatch next() override {
    ++state_.at_work;
    if (state_.taken++ > 0) {
      state_.taken.notify_all();
      state_.is_open.wait(false);
    }
    --state_.at_work;
    return {};
  }

 private:
  State& state_;
};

TEST_P(Prefetch, StopsWhileWorkIsUnderWay) {
  for (int i = 0; i < 50; ++i) {
    GatedSource::State state;
    auto source = make_prefetch_source(std::make_unique<GatedSource>(state),
                                       {.device = c10::kCPU, .in_thread = GetParam(), .depth = 3});
    source->next();
    if (GetParam()) state.taken.wait(1);  // the thread is inside the second next()
    std::thread destroyer([&] { source.reset(); });
    std::this_thread::yield();
    state.is_open = true;
    state.is_open.notify_all();
    destroyer.join();
    EXPECT_TRUE(state.is_destroyed);
    EXPECT_FALSE(state.was_destroyed_at_work) << "the source went while its thread used it";
    EXPECT_EQ(state.at_work, 0);
    EXPECT_LE(state.taken, GetParam() ? 4 : 1);
  }
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
