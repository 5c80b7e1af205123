// Tests the tuning cache: measurements are cached and reused, concurrent processes agree, and a
// folder that cannot be written is not an error.
#include "megatron/base/tuning_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace megatron {
namespace {

namespace fs = std::filesystem;

class MachineCache : public testing::Test {
 protected:
  MachineCache()
      : folder_(fs::path(testing::TempDir()) / ("machine_cache_" + std::to_string(::getpid()))) {
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~MachineCache() override {
    ::unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
  }
  fs::path folder_;
};

TEST_F(MachineCache, MeasuresOnce) {
  int measured = 0;
  const auto measure = [&] { return "figure " + std::to_string(++measured); };
  EXPECT_EQ(cached_measurement("speed", measure), "figure 1");
  EXPECT_EQ(cached_measurement("speed", measure), "figure 1");
  EXPECT_EQ(cached_measurement("other", measure), "figure 2");
  EXPECT_EQ(tuning_cache_folder(), (folder_ / "megatron").string());
}

TEST_F(MachineCache, AllWhoMeasureAtTheSameTimeAgree) {
  std::vector<std::string> answers(8);
  std::atomic<int> started = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      answers[static_cast<std::size_t>(i)] = cached_measurement("race", [&] {
        ++started;
        while (started < 8) std::this_thread::yield();
        return std::to_string(i);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set(answers.begin(), answers.end()).size(), 1u);
}

TEST_F(MachineCache, DoesWithoutAFolder) {
  ::setenv("XDG_CACHE_HOME", "/proc/no/such/place", 1);
  EXPECT_EQ(cached_measurement("speed", [] { return std::string("7"); }), "7");
}

}  // namespace
}  // namespace megatron
