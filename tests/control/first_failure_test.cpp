// Tests which rank is said to have failed, whatever the order in which the ends are seen.
#include "megatron/control/first_failure.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace megatron {
namespace {

using Kind = FirstFailure::Kind;

RankEnd exited(std::int64_t rank, int code, const std::string& cause = "") {
  return {rank, W_EXITCODE(code, 0), cause};
}
RankEnd killed(std::int64_t rank, int signal) { return {rank, W_EXITCODE(0, signal), ""}; }

TEST(FirstFailure, AConsequenceThatEndsFirstIsNotTheFailure) {
  FirstFailure failure;
  EXPECT_TRUE(
      failure.record({exited(0, 1, "rank 3: disk full"), exited(1, 1, "rank 3: disk full")}));
  EXPECT_EQ(failure.end().rank, 0);
  EXPECT_EQ(failure.kind(), Kind::consequence);
  EXPECT_TRUE(failure.record({exited(2, 1, "rank 3: disk full"), exited(3, 1)}));
  EXPECT_EQ(failure.end().rank, 3);
  EXPECT_EQ(failure.kind(), Kind::own);
  EXPECT_FALSE(failure.record({killed(2, SIGKILL)})) << "a later failure";
}

TEST(FirstFailure, OfEndsSeenTogetherTheKilledRankHasFailed) {
  FirstFailure failure;
  EXPECT_TRUE(failure.record({exited(0, 1), exited(1, 3), killed(2, SIGSEGV), exited(3, 0)}));
  EXPECT_EQ(failure.end().rank, 2);
  EXPECT_EQ(exit_code_of(failure.end().status), 139);
  EXPECT_EQ(describe_end(failure.end().status), "was killed by signal 11 (SIGSEGV)");
}

TEST(FirstFailure, ACrashAfterOthersHaveStoppedIsTheFailure) {
  FirstFailure failure;
  failure.record_signal(SIGTERM);
  EXPECT_TRUE(failure.record({exited(1, 143), exited(2, 143)}));
  EXPECT_EQ(failure.kind(), Kind::stopped_on_request);
  EXPECT_TRUE(failure.record({killed(0, SIGKILL)}));
  EXPECT_EQ(failure.kind(), Kind::own);
  EXPECT_EQ(failure.end().rank, 0);
}

TEST(FirstFailure, OnlyCodesOfSignalsThatStopARunAreStops) {
  for (const int code : {143, 130, 140, 129}) EXPECT_TRUE(is_code_of_stop(code)) << code;
  for (const int code : {0, 1, 2, 17, 128, 134, 137, 139, 255}) {
    EXPECT_FALSE(is_code_of_stop(code)) << code;
  }
  FirstFailure failure;
  EXPECT_TRUE(failure.record({exited(0, 255)}));
  EXPECT_EQ(failure.kind(), Kind::own);
}

TEST(FirstFailure, ASignalThatAllRanksWereSentExplainsTheirEnds) {
  FirstFailure asked, other;
  asked.record_signal(SIGUSR1);
  EXPECT_TRUE(asked.record({killed(0, SIGUSR1)}));
  EXPECT_EQ(asked.kind(), Kind::stopped_on_request);
  EXPECT_TRUE(other.record({killed(0, SIGUSR1)}));
  EXPECT_EQ(other.kind(), Kind::own);
}

TEST(FirstFailure, EndsThatTheLauncherCausesExplainNothing) {
  FirstFailure failure;
  failure.record({exited(0, 1, "rank 3: disk full")});
  failure.record_termination();
  EXPECT_FALSE(failure.record({killed(3, SIGKILL)}));
  EXPECT_EQ(failure.end().rank, 0);
  FirstFailure none;
  none.record_termination();
  EXPECT_TRUE(none.record({killed(3, SIGKILL)})) << "else nobody would have failed";
}

}  // namespace
}  // namespace megatron
