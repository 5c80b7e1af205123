// Runs every target on its inputs in finds/, each of which once broke the parser.
#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz/target.h"
#include "megatron/base/files.h"

namespace megatron::fuzz {
namespace {

class Finds : public ::testing::TestWithParam<Target> {};

TEST_P(Finds, AreRefusedOrRead) {
  const Target& target = GetParam();
  const fs::path folder = fs::path(MEGATRON_SOURCE_DIR "/tests/fuzz/finds") / target.name;
  run(target, "");
  if (!fs::exists(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string input = read_file(entry.path());
    EXPECT_NO_THROW(run(target, input)) << entry.path();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Finds, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FindsFolders, BelongToTargets) {
  for (const auto& entry : fs::directory_iterator(MEGATRON_SOURCE_DIR "/tests/fuzz/finds"))
    EXPECT_NE(std::ranges::find(targets(), entry.path().filename().string(), &Target::name),
              targets().end())
        << entry.path();
}

}  // namespace
}  // namespace megatron::fuzz
