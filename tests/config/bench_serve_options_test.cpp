#include "megatron/config/bench_serve_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchServeOptions read(const std::vector<std::string>& args) {
  return read_bench_serve_options(args);
}

std::string error_of(const std::vector<std::string>& args) {
  return message_of([&] { read(args); });
}

TEST(BenchServeOptions, TheRateMeansAProfile) {
  EXPECT_EQ(read({}).profile, "throughput");
  EXPECT_EQ(read({"--request-rate", "inf"}).profile, "throughput");
  const BenchServeOptions options = read({"--rate", "4", "0.5"});
  EXPECT_EQ(options.profile, "poisson");
  EXPECT_THAT(options.rates, ElementsAre(4, 0.5));
}

TEST(BenchServeOptions, SomethingLimitsALoad) {
  EXPECT_EQ(read({}).num_prompts, 100);
  EXPECT_FALSE(read({"--max-seconds", "5"}).num_prompts.has_value());
  EXPECT_EQ(read({"--max-seconds", "5", "--max-requests", "7"}).num_prompts, 7);
}

TEST(BenchServeOptions, RatesFitTheProfile) {
  EXPECT_THAT(error_of({"--request-rate", "fast"}), HasSubstr("must be numbers above 0"));
  EXPECT_THAT(error_of({"--request-rate", "0"}), HasSubstr("must be numbers above 0"));
  EXPECT_THAT(error_of({"--profile", "synchronous", "--rate", "2"}), HasSubstr("has no meaning"));
  EXPECT_THAT(error_of({"--profile", "throughput", "--rate", "2"}), HasSubstr("has no meaning"));
  EXPECT_THAT(error_of({"--profile", "constant"}), HasSubstr("must be requests per second"));
  EXPECT_THAT(error_of({"--profile", "concurrent"}), HasSubstr("how many requests are in flight"));
  EXPECT_THAT(error_of({"--profile", "concurrent", "--rate", "1.5"}), HasSubstr("whole numbers"));
  EXPECT_THAT(error_of({"--profile", "concurrent", "--rate", "1001"}), HasSubstr("up to 1000"));
  EXPECT_THAT(error_of({"--profile", "sweep", "--rate", "2"}), HasSubstr("whole numbers"));
  EXPECT_THAT(error_of({"--profile", "sweep", "--rate", "4", "5"}), HasSubstr("one number"));
  EXPECT_THAT(error_of({"--max-concurrency", "1001"}), HasSubstr("1000"));
}

}  // namespace
}  // namespace megatron
