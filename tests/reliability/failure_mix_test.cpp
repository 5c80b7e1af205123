#include "megatron/reliability/failure_mix.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatron/base/error.h"

namespace megatron {
namespace {

FailureMix read_text(const std::string& text) {
  const std::string path = testing::TempDir() + "/failure_mix.json";
  std::ofstream(path) << text;
  return read_failure_mix(path);
}

std::string message_of(const std::string& text) {
  try {
    read_text(text);
  } catch (const UserError& error) {
    return error.parts().problem();
  }
  return "";
}

TEST(FailureMix, Llama3HasTheInterruptionsOfThePaper) {
  const FailureMix mix = llama3_failure_mix();
  double unexpected = 0, announced = 0;
  for (const FailureClass& each : mix.classes)
    (each.sign == FailureSign::announced ? announced : unexpected) += each.count;
  EXPECT_EQ(unexpected, 419);
  EXPECT_EQ(announced, 47);
  // One interruption every 2.78 hours.
  EXPECT_NEAR(1 / (mix.rate_of_gpu() * 16384) / 3600, 54 * 24 / 466.0, 1e-9);
}

TEST(FailureMix, AFileIsRead) {
  const FailureMix mix = read_text(
      R"({"gpus": 8, "days": 2, "classes": [
            {"name": "GPU", "count": 4, "sign": "hang", "host_hours": 3},
            {"name": "bug", "count": 2, "sign": "crash"}]})");
  EXPECT_EQ(mix.gpus, 8);
  EXPECT_EQ(mix.seconds, 2 * 86400);
  ASSERT_EQ(mix.classes.size(), 2U);
  EXPECT_EQ(mix.classes[0].sign, FailureSign::hang);
  EXPECT_EQ(mix.classes[0].host_out_s, 3 * 3600);
  EXPECT_EQ(mix.classes[1].host_out_s, 0);
  EXPECT_DOUBLE_EQ(mix.rate_of_gpu(), 6.0 / (8 * 2 * 86400));
}

TEST(FailureMix, MistakesNameTheFileAndTheClass) {
  EXPECT_NE(message_of(R"({"gpus": 0, "days": 1, "classes": []})").find("gpus"), std::string::npos);
  EXPECT_NE(message_of(R"({"gpus": 1, "days": 1, "classes": []})").find("classes"),
            std::string::npos);
  EXPECT_NE(message_of(
                R"({"gpus": 1, "days": 1, "classes": [{"name": "x", "count": 1, "sign": "boom"}]})")
                .find("class 'x': sign: 'boom' is unknown"),
            std::string::npos);
  EXPECT_NE(message_of(
                R"({"gpus": 1, "days": 1, "classes": [{"name": "x", "count": 0, "sign": "hang"}]})")
                .find("count"),
            std::string::npos);
}

}  // namespace
}  // namespace megatron
