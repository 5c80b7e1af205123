#include "megatron/load_test/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json body_of(const Trace& trace, std::int64_t index) {
  return parse_json(trace.body(index), "body");
}

Trace trace_with(const std::string& data, std::int64_t seed = 1) {
  BenchServeOptions options;
  options.model = "m";
  options.data = data;
  options.seed = seed;
  return {options, {10, 11, 12, 13}};
}

std::string failure_of(const std::string& data) {
  return message_of([&] { trace_with(data); });
}

/// Mean and variance of the gaps of 5,000 requests.
std::pair<double, double> moments(const Arrivals& arrivals) {
  constexpr int kCount = 5000;
  const Trace trace = trace_with("prompt_tokens=1,output_tokens=1");
  double sum = 0, squares = 0;
  for (int i = 1; i <= kCount; ++i) {
    const double gap = trace.gap(arrivals, i);
    sum += gap, squares += gap * gap;
  }
  const double mean = sum / kCount;
  return {mean, squares / kCount - mean * mean};
}

TEST(Trace, SeedsRepeat) {
  const std::string data = "prompt_tokens=20,prompt_tokens_stdev=5,output_tokens=8";
  const Trace trace = trace_with(data), again = trace_with(data), other = trace_with(data, 2);
  std::set<std::string> bodies;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(trace.body(i), again.body(i));
    EXPECT_NE(trace.body(i), other.body(i));
    EXPECT_EQ(trace.gap({4, 1.0}, i), again.gap({4, 1.0}, i));
    bodies.insert(trace.body(i));
  }
  EXPECT_EQ(bodies.size(), 50u);
}

TEST(Trace, LengthsAreThoseAskedFor) {
  const Trace trace = trace_with("prompt_tokens=7,output_tokens_min=3,output_tokens_max=6");
  std::set<std::int64_t> lengths;
  for (int i = 0; i < 200; ++i) {
    const Json body = body_of(trace, i);
    EXPECT_EQ(body["prompt"].size(), 7u);
    for (const Json& id : body["prompt"]) EXPECT_TRUE(id >= 10 && id <= 13);
    lengths.insert(body["max_tokens"].get<std::int64_t>());
  }
  EXPECT_THAT(lengths, ElementsAre(3, 4, 5, 6));
}

// 2,000 draws: the mean of a normal sample is within four of its standard errors, 10 / √2000.
TEST(Trace, LengthsAreNormalWithinTheirBounds) {
  const Trace trace =
      trace_with("prompt_tokens=1,output_tokens=100,output_tokens_stdev=10,output_tokens_max=130");
  double sum = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto length = body_of(trace, i)["max_tokens"].get<std::int64_t>();
    EXPECT_LE(length, 130);
    sum += static_cast<double>(length);
  }
  EXPECT_NEAR(sum / 2000, 100, 4 * 10 / std::sqrt(2000.0));
}

// The gaps are gamma distributed with shape b and mean 1 / rate, so the variance is mean² / b.
TEST(Trace, GapsHaveTheRateAndTheBurstiness) {
  for (const double burstiness : {0.5, 1.0, 4.0}) {
    const auto [mean, variance] = moments({4, burstiness});
    EXPECT_NEAR(mean, 0.25, 0.02) << burstiness;
    EXPECT_NEAR(variance, 0.0625 / burstiness, 0.25 * 0.0625 / burstiness) << burstiness;
  }
  const auto [mean, variance] = moments({4, std::nullopt});
  EXPECT_NEAR(mean, 0.25, 1e-12);
  EXPECT_NEAR(variance, 0, 1e-12);
  EXPECT_EQ(moments({}).first, 0);
}

TEST(Trace, PrefixesAreShared) {
  BenchServeOptions options;
  options.data = "prompt_tokens=5,output_tokens=1";
  options.prefix_tokens = 12;
  options.num_prefixes = 3;
  const Trace trace(options, {1, 2, 3, 4, 5, 6, 7, 8});
  std::set<std::string> prefixes, prompts;
  for (int i = 0; i < 60; ++i) {
    const auto ids = body_of(trace, i)["prompt"].get<std::vector<int>>();
    ASSERT_EQ(ids.size(), 17u);
    prefixes.insert(Json(std::vector<int>(ids.begin(), ids.begin() + 12)).dump());
    prompts.insert(Json(ids).dump());
  }
  EXPECT_EQ(prefixes.size(), 3u);
  EXPECT_GT(prompts.size(), 50u);
}

TEST(Trace, BodiesAreThoseOfTheEndpoint) {
  BenchServeOptions options;
  options.model = "m";
  options.endpoint = "chat";
  options.data = "prompt_tokens=3,output_tokens=9";
  options.ignore_eos = false;
  options.extra_body = R"({"temperature": 0})";
  const Json chat = body_of(Trace(options, {}), 0);
  EXPECT_EQ(chat["messages"][0]["role"], "user");
  const std::string text = chat["messages"][0]["content"];
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 2);
  EXPECT_EQ(chat["max_tokens"], 9);
  EXPECT_EQ(chat["temperature"], 0);
  EXPECT_EQ(chat["stream_options"]["include_usage"], true);
  EXPECT_FALSE(chat.contains("ignore_eos"));
  options.endpoint = "completions";
  options.ignore_eos = true;
  const Json completion = body_of(Trace(options, {}), 0);
  EXPECT_EQ(completion["prompt"], text);
  EXPECT_EQ(completion["ignore_eos"], true);
}

TEST(Trace, RequestsComeFromAFile) {
  const TemporaryFolder folder;
  const std::string path = (folder / "requests.jsonl").string();
  write_file(path, "{\"prompt\": \"one\", \"output_tokens\": 4}\n{\"prompt\": [1, 2]}\n");
  const Trace trace = trace_with(path);
  EXPECT_EQ(body_of(trace, 0)["prompt"], "one");
  EXPECT_EQ(body_of(trace, 0)["max_tokens"], 4);
  EXPECT_EQ(body_of(trace, 1)["prompt"], Json::array({1, 2}));
  EXPECT_EQ(body_of(trace, 2)["prompt"], "one");
  write_file(path, "{\"prompt\": \"one\"}\n{\"text\": \"two\"}\n");
  EXPECT_THAT(failure_of(path), HasSubstr("requests.jsonl:2"));
  write_file(path, "");
  EXPECT_THAT(failure_of(path), HasSubstr("has no requests"));
}

TEST(Trace, MistakesInLengthsAreNamed) {
  EXPECT_THAT(failure_of("prompt_tokens=x"), HasSubstr("'prompt_tokens=x'"));
  EXPECT_THAT(failure_of("prompt_tokens=-1"), HasSubstr("'prompt_tokens=-1'"));
  EXPECT_THAT(failure_of("prompt_tokens=1,size=3"), HasSubstr("'size=3'"));
  EXPECT_THAT(failure_of("absent.jsonl"), HasSubstr("'absent.jsonl' is neither"));
}

}  // namespace
}  // namespace megatron
