#include "megatron/checkpoint/collective_steps.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/parallel/rank.h"
#include "support/data_parallel_ranks.h"

namespace megatron {
namespace {

/// Returns the UserErrors of two ranks of which the second cannot read a folder.
template <class Run>
std::vector<std::string> errors_of(const Run& run) {
  std::vector<std::string> errors(2, "no error");
  on_data_ranks({.dp = 2}, [&](const Rank& rank, Communicators&) {
    try {
      run(CollectiveSteps(rank.world, rank.device), [&] {
        const bool is_missing = rank.index == 1;
        const std::filesystem::directory_iterator folder(is_missing ? "/proc/missing-folder" : "/");
        return std::string();
      });
    } catch (const UserError& error) {
      errors[static_cast<std::size_t>(rank.index)] = error.what();
    }
  });
  return errors;
}

TEST(CollectiveSteps, AFolderThatOneRankCannotReadIsAUserErrorOnAll) {
  const auto all = errors_of(
      [](const CollectiveSteps& steps, const auto& step) { steps.run_on_all_ranks(step); });
  const auto gathered = errors_of(
      [](const CollectiveSteps& steps, const auto& step) { steps.gather_from_all_ranks(step); });
  for (const auto& errors : {all, gathered}) {
    EXPECT_EQ(errors[1].substr(0, errors[1].find(':')), "cannot read folder /proc/missing-folder");
    EXPECT_EQ(errors[0], "rank 1: " + errors[1]);
  }
}

}  // namespace
}  // namespace megatron
