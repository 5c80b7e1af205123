// Warnings about waits, stacks and dumps of hung ranks, and waits that continue while others make
// progress.
#include "megatron/parallel/failure/hang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "megatron/base/files.h"
#include "megatron/parallel/failure/dump_analysis.h"
#include "megatron/parallel/rank_threads.h"
#include "parallel/rank_processes.h"
#include "support/rank_numbers.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

/// In the stack of a thread that sleeps.
constexpr const char* kSleepFunction = "nanosleep";

/// The lines that a watch prints.
class Lines {
 public:
  std::function<void(const std::string&)> printer() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool wait_for(std::size_t count) {
    for (int i = 0; i < 1000 && all().size() < count; ++i)
      std::this_thread::sleep_for(milliseconds(10));
    return all().size() >= count;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::shared_ptr<HostStatus> status_of(std::int64_t ranks) {
  return std::make_shared<HostStatus>(SharedMemory::for_threads(HostStatus::bytes(ranks)), ranks);
}

/// Rank 0 of two ranks waits for rank 1.
class HangWatchTest : public testing::Test {
 protected:
  HangWatchTest() {
    status_->enter(0);
    status_->enter(1);
    status_->waits().note_iteration(0, 4);
    status_->waits().note_iteration(1, 3);
    status_->waits().add_blocked(0, 1);
    wait_.emplace(status_->waits(), 0, call_, std::vector<std::int64_t>{1});
  }
  HangWatchOptions options() {
    return {.rank = 0,
            .world_size = 2,
            .warn_after = milliseconds(400),
            .timeout = std::chrono::seconds(60),
            .print = lines_.printer()};
  }

  Lines lines_;
  const std::shared_ptr<HostStatus> status_ = status_of(2);
  const CommCall call_{.operation = CommOperation::all_reduce,
                       .what = "gradients",
                       .axis = "dp",
                       .layer = std::make_shared<const std::string>("decoder.layers.3")};
  std::optional<WaitTable::Wait> wait_;
};

TEST_F(HangWatchTest, WarnsOnceAboutTheRankThatIsMissed) {
  const HangWatch watch(status_, options());
  ASSERT_TRUE(lines_.wait_for(1));
  EXPECT_THAT(lines_.all()[0],
              AllOf(HasSubstr("warning: all_reduce 'gradients' on dp in decoder.layers.3: rank 1 "
                              "has not arrived after 0.4 s (iteration 4; rank 1 is outside of "
                              "every call, in iteration 3)"),
                    HasSubstr("the run waits up to 60 s (--distributed-timeout-minutes)")));
  std::this_thread::sleep_for(milliseconds(1'000));
  EXPECT_THAT(lines_.all(), SizeIs(1)) << "the next warning comes after a minute";
}

TEST_F(HangWatchTest, SaysWhatTheMissedRankDoes) {
  status_->begin_section(1, "saving the checkpoint of iteration 3");
  const HangWatch watch(status_, options());
  ASSERT_TRUE(lines_.wait_for(1));
  EXPECT_THAT(lines_.all()[0], HasSubstr("rank 1 is saving the checkpoint of iteration 3, for "));
}

TEST_F(HangWatchTest, IsSilentWhileTheProgramIsNotBlocked) {
  status_->waits().add_blocked(0, -1);  // the call is asynchronous
  const HangWatch watch(status_, options());
  std::this_thread::sleep_for(milliseconds(1'200));
  EXPECT_THAT(lines_.all(), SizeIs(0));
}

TEST_F(HangWatchTest, CanBeSwitchedOff) {
  HangWatchOptions off = options();
  off.warn_after = milliseconds(0);
  const HangWatch watch(status_, off);
  std::this_thread::sleep_for(milliseconds(1'200));
  EXPECT_THAT(lines_.all(), SizeIs(0));
}

/// On a GPU no wait of the host shows a hang; the history of calls does.
TEST_F(HangWatchTest, WarnsAboutCallsOfADevice) {
  wait_.reset();
  CallHistory& history = status_->history();
  const std::uint64_t group = history.add_group("dp", {0, 1});
  history.leave(0, history.enter({.rank = 0, .group = group, .group_number = 1}, call_));
  history.enter({.rank = 1, .group = group, .group_number = 1}, call_);
  const std::uint64_t late = history.enter({.rank = 0, .group = group, .group_number = 2}, call_);
  HangWatchOptions device = options();
  device.poll_device_calls = [&] { return DeviceCall{late, milliseconds(500)}; };
  {
    const HangWatch watch(status_, device);
    ASSERT_TRUE(lines_.wait_for(1));
  }
  EXPECT_THAT(lines_.all()[0], HasSubstr("all_reduce 'gradients' on dp in decoder.layers.3: rank 1 "
                                         "has not arrived"));
}

/// A call that was made long ago may be complete, or only now be waited for.
TEST_F(HangWatchTest, CallsThatNoDeviceWaitsForAreNotLate) {
  wait_.reset();
  CallHistory& history = status_->history();
  const std::uint64_t group = history.add_group("dp", {0, 1});
  const std::uint64_t call = history.enter({.rank = 0, .group = group, .group_number = 1}, call_);
  std::atomic<int> num_polls = 0;
  HangWatchOptions device = options();
  device.timeout = milliseconds(600);
  device.poll_device_calls = [&]() -> std::optional<DeviceCall> {
    if (++num_polls < 6) return std::nullopt;
    return DeviceCall{call, milliseconds(200)};
  };
  {
    const HangWatch watch(status_, device);
    for (int i = 0; i < 500 && num_polls < 12; ++i) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(num_polls, 12);
  EXPECT_THAT(lines_.all(), SizeIs(0));
  EXPECT_FALSE(status_->failed());
}

/// The host does not wait for a device, so no wait of a transport would end the run.
TEST_F(HangWatchTest, EndsTheRunWhenACallOfADeviceIsNeverComplete) {
  wait_.reset();
  CallHistory& history = status_->history();
  const std::uint64_t group = history.add_group("dp", {0, 1});
  const std::uint64_t call = history.enter({.rank = 0, .group = group, .group_number = 1}, call_);
  HangWatchOptions device = options();
  device.poll_device_calls = [call] { return DeviceCall{call, milliseconds(700)}; };
  device.warn_after = milliseconds(0);
  device.timeout = milliseconds(600);
  {
    const HangWatch watch(status_, device);
    for (int i = 0; i < 500 && !status_->failed(); ++i)
      std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_THAT(status_->failure(), HasSubstr("all_reduce 'gradients' on dp in decoder.layers.3: "
                                            "rank 1 has not arrived after 0.6 s"));
  EXPECT_THAT(lines_.all(), SizeIs(0));
}

/// Returns the failure that a passed deadline causes, or "" after five seconds.
std::string failure_after(const HostStatus& status) {
  for (int i = 0; i < 500 && !status.failed(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return status.failure();
}

TEST_F(HangWatchTest, ADeadlineNamesTheRankThatDelaysThisOne) {
  HangWatchOptions quiet = options();
  quiet.warn_after = milliseconds(0);
  HangWatch watch(status_, quiet);
  watch.set_deadline({"the section 'step'", milliseconds(2'400), "--limit"});
  EXPECT_THAT(failure_after(*status_),
              HasSubstr("the section 'step' of rank 0 is not over after 2.4 s (--limit): rank 1 "
                        "has not arrived after "));
}

TEST_F(HangWatchTest, ADeadlineWaitsForARankThatSavesAndMakesProgress) {
  HangWatchOptions quiet = options();
  quiet.warn_after = milliseconds(0);
  status_->begin_section(1, "saving the checkpoint of iteration 3");
  HangWatch watch(status_, quiet);
  watch.set_deadline({"the section 'step'", milliseconds(1'200), "--limit"});
  for (int i = 0; i < 25; ++i) {
    status_->record_progress(1);
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(status_->failure(), "");
}

TEST(HangWatch, ADeadlineOfARankThatWaitsForNobodyHasItsStack) {
  const auto status = status_of(1);
  status->enter(0);
  HangWatch watch(status, {.rank = 0, .warn_after = milliseconds(0)});
  watch.set_deadline({"the section 'setup'", milliseconds(300), "--limit"});
  EXPECT_THAT(failure_after(*status),
              AllOf(HasSubstr("the section 'setup' of rank 0 is not over after 0.3 s (--limit): "
                              "this rank waits for no other, it is in "),
                    HasSubstr(kSleepFunction)));
}

TEST(HangWatch, ADeadlineMovesAndEnds) {
  const auto status = status_of(1);
  status->enter(0);
  HangWatch watch(status, {.rank = 0, .warn_after = milliseconds(0)});
  for (int i = 0; i < 4; ++i) {
    watch.set_deadline({"the section 'step'", milliseconds(1'000), "--limit"});
    std::this_thread::sleep_for(milliseconds(400));
  }
  watch.set_deadline({});
  std::this_thread::sleep_for(milliseconds(1'400));
  EXPECT_EQ(status->failure(), "");
}

TEST(HangWatch, DumpsOnASignal) {
  const TemporaryFolder folder;
  const auto status = status_of(1);
  status->enter(0);
  const HangWatch watch(status, {.start = "s", .folder = folder.path()});
  ::raise(SIGUSR2);
  const fs::path path = dump_path(folder.path(), 0);
  for (int i = 0; i < 500 && !fs::exists(path); ++i) std::this_thread::sleep_for(milliseconds(10));
  const RankDump dump = read_dump(path);
  EXPECT_EQ(dump.reason, "SIGUSR2");
  EXPECT_EQ(dump.process, ::getpid());
  ASSERT_FALSE(dump.threads.empty());
  EXPECT_FALSE(dump.threads[0].frames.empty());
}

/// A failure with a message of its own needs no search for its cause.
TEST(HangWatch, DumpsFailuresWithoutAMessage) {
  for (const bool is_explained : {false, true}) {
    const TemporaryFolder folder;
    const auto status = status_of(1);
    status->enter(0);
    {
      const HangWatch watch(status, {.start = "s", .folder = folder.path()});
      status->fail("rank 1 died", is_explained);
    }
    EXPECT_EQ(fs::exists(dump_path(folder.path(), 0)), !is_explained);
  }
}

// ---- ranks as processes ----

/// Rank 1 comes too late. It writes a file when the ranks have met.
const RankBodyOf kLateRank{"late rank", [](Communicators& world) {
                             const auto comm = world.group(first_ranks(2), "dp");
                             comm->barrier("together");
                             if (world.rank() == 1) {
                               std::ofstream(child_variable("MEGATRON_TEST_HANG_REPORTS") + "/met")
                                   << "met";
                               std::this_thread::sleep_for(milliseconds(6'000));
                             }
                             comm->barrier("late");
                           }};

TEST(HangWatch, TheFailureHasTheStackOfTheMissedRank) {
  const TemporaryFolder folder;
  RankProcesses ranks({.body = "late rank",
                       .hosts = {"a", "a"},
                       .timeout_ms = 3'000,
                       .hang_reports = folder.path()});
  EXPECT_THAT(ranks.ends()[0].text,
              AllOf(HasSubstr("barrier 'late' on dp: rank 1 has not arrived after 3 s"),
                    HasSubstr("rank 1 is outside of every call, in "), HasSubstr(kSleepFunction)));
  const std::vector<RankDump> dumps = read_dumps(folder.path()).dumps;
  ASSERT_THAT(dumps, SizeIs(2));
  const HangAnalysis found = analyze_dumps(dumps);
  EXPECT_THAT(found.culprits, ElementsAre(1));
  EXPECT_EQ(found.blocked.at(0).call.what, "late");
  EXPECT_THAT(hang_report_text(dumps, found),
              AllOf(HasSubstr("rank 1 blocks the others"), HasSubstr("Main thread of rank 1"),
                    HasSubstr(kSleepFunction)));
  EXPECT_TRUE(found.blocked.at(0).call.is_awaited);
}

/// The survivor writes the calls of the dead rank, which are in shared memory.
TEST(HangWatch, ADeadRankIsInTheReport) {
  const TemporaryFolder folder;
  RankProcesses ranks({.body = "late rank", .hosts = {"a", "a"}, .hang_reports = folder.path()});
  for (int i = 0; i < 2'000 && !fs::exists(folder.path() / "met"); ++i)
    std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(500));  // rank 0 waits
  ::kill(ranks.process(1), SIGKILL);
  EXPECT_THAT(ranks.ends()[0].text, HasSubstr("rank 1 died"));
  const RankDump dump = read_dump(dump_path(folder.path(), 1));
  EXPECT_EQ(dump.state, "dead");
  EXPECT_EQ(dump.calls.at(0).what, "together");
}

/// Rank 1 works twice as long as the timeout, and its peer waits: on one host, and across hosts.
const RankBodyOf kBusyRank{"busy rank", [](Communicators& world) {
                             const auto comm = world.group(first_ranks(2), "dp");
                             if (world.rank() == 1) {
                               const SectionScope section(&world, "writing");
                               const auto until =
                                   std::chrono::steady_clock::now() + milliseconds(5'000);
                               volatile std::uint64_t work = 0;
                               while (std::chrono::steady_clock::now() < until) work = work + 1;
                             }
                             comm->barrier("end");
                           }};

TEST(HangWatch, AWaitGoesOnWhileTheOtherMakesProgress) {
  for (const std::string other_host : {"a", "b"}) {
    RankProcesses ranks({.body = "busy rank", .hosts = {"a", other_host}, .timeout_ms = 2'000});
    for (const ProcessEnd& end : ranks.ends()) EXPECT_EQ(end.code, 0) << end.text;
  }
}

/// All ranks have a deadline, and one is busy. The operation timeout is much longer.
const RankBodyOf kLatePastDeadline{
    "late past a deadline", [](Communicators& world) {
      const auto comm = world.group(first_ranks(3), "dp");
      comm->barrier("together");
      world.set_deadline({"the step", milliseconds(2'000), "--limit"});
      if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(60'000));
      comm->barrier("end");
    }};

TEST(HangWatch, ADeadlineNamesTheRankOnAnyHost) {
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{"a", "a", "a"}, {"a", "b", "c"}, {"a", "a", "b"}}) {
    RankProcesses ranks({.body = "late past a deadline", .hosts = hosts, .timeout_ms = 90'000});
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2'000 && fs::exists("/proc/" + std::to_string(ranks.process(0)) + "/exe");
         ++i)
      std::this_thread::sleep_for(milliseconds(10));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    ::kill(ranks.process(2), SIGKILL);
    EXPECT_THAT(
        ranks.ends()[0].text,
        AllOf(HasSubstr("the step of rank "), HasSubstr(" is not over after 2 s (--limit): "),
              AnyOf(HasSubstr("rank 2 has not arrived"),
                    HasSubstr("of rank 2 is not over after 2 s (--limit): this rank "))))
        << hosts[1] << hosts[2];
  }
}

/// A section without progress does not extend the wait.
const RankBodyOf kStuckRank{"stuck rank", [](Communicators& world) {
                              const auto comm = world.group(first_ranks(2), "dp");
                              if (world.rank() == 1) {
                                const SectionScope section(&world, "writing");
                                std::this_thread::sleep_for(milliseconds(7'000));
                              }
                              comm->barrier("end");
                            }};

TEST(HangWatch, AWaitEndsWithoutProgress) {
  for (const std::string other_host : {"a", "b"}) {
    RankProcesses ranks({.body = "stuck rank", .hosts = {"a", other_host}, .timeout_ms = 2'000});
    EXPECT_THAT(ranks.ends()[0].text,
                AllOf(HasSubstr("rank 1 has not arrived after "), HasSubstr("is writing, for ")));
  }
}

}  // namespace
}  // namespace megatron
