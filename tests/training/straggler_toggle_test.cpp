#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/training/observability/stragglers/straggler_monitor.h"
#include "training/http_answer.h"

namespace megatron {
namespace {

using testing::EndsWith;

TEST(StragglerToggle, EachRequestSwitches) {
  const StragglerToggle toggle(0, /*is_on=*/true);
  EXPECT_TRUE(toggle.is_on());
  EXPECT_THAT(answer(toggle.port(), "/"), EndsWith("straggler report: off\n"));
  EXPECT_FALSE(toggle.is_on());
  EXPECT_THAT(answer(toggle.port(), "/any/path"), EndsWith("straggler report: on\n"));
  EXPECT_TRUE(toggle.is_on());
}

TEST(StragglerToggle, StartsAsAskedFor) {
  const StragglerToggle toggle(0, /*is_on=*/false);
  EXPECT_FALSE(toggle.is_on());
  EXPECT_THAT(answer(toggle.port(), "/"), EndsWith("straggler report: on\n"));
}

TEST(StragglerToggle, APortInUseNamesTheFlag) {
  const StragglerToggle first(0, true);
  try {
    const StragglerToggle second(first.port(), true);
    FAIL() << "two on one port";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("--straggler-ctrlr-port " + std::to_string(first.port()) +
                                   " cannot be opened"));
  }
}

}  // namespace
}  // namespace megatron
