// The processes of a run, and their end after an error: one message, printed by rank 0, and the
// same exit code on all ranks.
#include "megatron/parallel/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank_list.h"
#include "parallel/forked_ranks.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

RendezvousOptions options_with(SettingsText settings = {},
                               milliseconds timeout = milliseconds(20'000)) {
  return {.timeout = timeout, .settings = std::move(settings)};
}

/// Runs `body` on ranks with the given environment.
std::vector<ForkedRank> run_world(
    std::int64_t size, const std::function<int(World&)>& body,
    const std::function<void(LaunchEnvironment&)>& change = [](LaunchEnvironment&) {}) {
  const std::int64_t port = free_port();
  return fork_ranks(size, [&](std::int64_t rank) {
    LaunchEnvironment environment = environment_of(rank, size, port);
    change(environment);
    return run_command("pretrain", [&] { return run_rank("pretrain", body, environment); });
  });
}

void expect_codes(const std::vector<ForkedRank>& ranks, int code) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].code, code) << "rank " << rank << ": " << ranks[rank].errors;
}

/// Expects this stderr on rank 0, and none on the other ranks.
void expect_one_message(const std::vector<ForkedRank>& ranks, const std::string& message) {
  EXPECT_EQ(ranks[0].errors, message);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].errors, "") << "rank " << rank;
}

TEST(World, OfOneProcessNeedsNoStore) {
  World world({}, "pretrain");
  world.join({});
  EXPECT_EQ(world.hosts().names.size(), 1u);
  EXPECT_FALSE(world.store());
  world.leave();
}

TEST(World, MeetsAndShares) {
  const auto ranks = run_world(4, [](World& world) {
    world.join(options_with({{"--lr", "0.1"}}));
    const std::string key = "from/" + std::to_string(world.environment().rank);
    world.store()->set(key, "7");
    const std::string other = "from/" + std::to_string((world.environment().rank + 1) % 4);
    const bool is_shared =
        world.store()->poll(other, milliseconds(20'000)) && world.store()->find(other) == "7";
    const bool is_one_host = world.hosts().names.size() == 1 &&
                             world.hosts().host_of_rank == std::vector<std::int64_t>(4, 0);
    return is_shared && is_one_host && world.hosts().cpus.count == 4 &&
                   world.hosts().cpus.index == world.environment().rank
               ? 0
               : 1;
  });
  expect_codes(ranks, 0);
  expect_one_message(ranks, "");
}

/// PyTorch's TCPStore and Gloo take such addresses.
TEST(World, MeetsAtEveryLoopbackAddress) {
  for (const char* address : {"::1", "localhost", "127.0.1.1"}) {
    if (!is_address_of_this_host(address)) continue;  // a host without IPv6
    const auto ranks = run_world(
        2, [](World& world) { return world.join(options_with()), 0; },
        [&](LaunchEnvironment& environment) { environment.master_addr = address; });
    expect_codes(ranks, 0);
    expect_one_message(ranks, "");
  }
}

TEST(World, LeavesTogether) {
  const auto ranks = run_world(3, [](World& world) {
    world.join(options_with());
    std::this_thread::sleep_for(milliseconds(300 * world.environment().rank));
    return 0;
  });
  expect_codes(ranks, 0);
  expect_one_message(ranks, "");
}

TEST(World, NamesTheFirstDifferentSetting) {
  const auto ranks = run_world(4, [](World& world) {
    const bool is_odd = world.environment().rank == 3;
    world.join(options_with({{"--seed", "1"},
                             {"--lr", is_odd ? "0.1" : "0.2"},
                             {"--seq-length", is_odd ? "8" : "16"}}));
    return 0;
  });
  expect_codes(ranks, 2);
  expect_one_message(ranks,
                     "megatron pretrain: error: rank 3 was started with --lr 0.1, rank 0 with --lr "
                     "0.2 (and one more setting differs)\n"
                     "  fix: start every rank with the same command\n");
}

TEST(World, NamesMissingRanks) {
  const std::int64_t port = free_port();
  const auto ranks = fork_ranks(2, [&](std::int64_t rank) {
    const auto body = [](World& world) {
      world.join({.timeout = milliseconds(3000), .progress_interval = milliseconds(2000)});
      return 0;
    };
    return run_command("pretrain",
                       [&] { return run_rank("pretrain", body, environment_of(rank, 4, port)); });
  });
  expect_codes(ranks, 2);
  expect_one_message(
      ranks,
      "waiting for ranks 2, 3 of 4 (2 s)\n"
      "megatron pretrain: error: the ranks of this run: ranks 2, 3 of 4 did not arrive within 3 s\n"
      "  fix: start them, or check why they ended; they must reach 127.0.0.1:" +
          std::to_string(port) + " (--distributed-timeout-minutes sets how long to wait)\n");
}

TEST(World, FailsEverywhereWhenOneRankFailsBefore) {
  const auto ranks = run_world(4, [](World& world) {
    if (world.environment().rank == 2)
      throw UserError({"--data-path books", "does not exist", "check the path"});
    world.join(options_with());
    return 0;
  });
  expect_codes(ranks, 2);
  EXPECT_THAT(ranks[0].errors,
              testing::MatchesRegex("megatron pretrain: rank 2 on .*: error: --data-path books: "
                                    "does not exist\n  fix: check the path\n"));
  for (const int rank : {1, 2, 3}) EXPECT_EQ(ranks[rank].errors, "");
  EXPECT_LT(ranks[3].seconds, 10);
}

TEST(World, PrintsOnceWhatEveryRankFindsBefore) {
  const auto ranks = run_world(4, [](World&) -> int {
    throw UserError({"--num-layers", "is required", ""});
  });
  expect_codes(ranks, 2);
  expect_one_message(ranks, "megatron pretrain: error: --num-layers: is required\n");
  EXPECT_LT(ranks[3].seconds, 10);
}

TEST(World, PrintsOnceWhatEveryRankFindsAfter) {
  const auto ranks = run_world(4, [](World& world) -> int {
    world.join(options_with());
    throw UserError({"--tensor-model-parallel-size 3", "does not divide 4 ranks", ""});
  });
  expect_codes(ranks, 2);
  expect_one_message(
      ranks, "megatron pretrain: error: --tensor-model-parallel-size 3: does not divide 4 ranks\n");
}

TEST(World, EndsTheWaitsOfTheOthers) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 1) throw std::runtime_error("out of luck");
    std::promise<std::string> reason;
    world.on_failure([&](const std::string& text) { reason.set_value(text); });
    const std::string text = reason.get_future().get();
    world.on_failure(nullptr);
    throw CommError("all_reduce on dp: " + text);
  });
  expect_codes(ranks, 1);
  EXPECT_THAT(
      ranks[0].errors,
      testing::MatchesRegex("megatron pretrain: rank 1 on .*: internal error: out of luck\n"));
  EXPECT_EQ(ranks[1].errors + ranks[2].errors, "");
  EXPECT_LT(ranks[2].seconds, 8);
}

TEST(World, EndsARankThatDoesNotListen) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 2) throw UserError({"a file", "is gone", ""});
    std::this_thread::sleep_for(std::chrono::hours(1));
    return 0;
  });
  expect_codes(ranks, 2);
  EXPECT_THAT(ranks[0].errors, HasSubstr("rank 2 on "));
  EXPECT_LT(ranks[1].seconds, 20);
}

TEST(World, EndsARankWhoseCallbackBlocks) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 2) throw UserError({"a file", "is gone", ""});
    world.on_failure(
        [](const std::string&) { std::this_thread::sleep_for(std::chrono::hours(1)); });
    std::this_thread::sleep_for(std::chrono::hours(1));
    return 0;
  });
  expect_codes(ranks, 2);
  EXPECT_LT(ranks[1].seconds, 20);
}

TEST(World, EndsAFailingRankWhoseCallbackBlocks) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 2) throw UserError({"a file", "is gone", ""});
    std::promise<void> end;
    world.on_failure([&](const std::string&) {
      end.set_value();
      std::this_thread::sleep_for(std::chrono::hours(1));
    });
    end.get_future().get();
    throw CommError("broken");
  });
  expect_codes(ranks, 2);
  EXPECT_LT(ranks[1].seconds, 20);
}

TEST(World, EndsARankWhoseCallbackThrows) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 2) throw UserError({"a file", "is gone", ""});
    world.on_failure([](const std::string&) { throw std::runtime_error("no abort"); });
    std::this_thread::sleep_for(std::chrono::hours(1));
    return 0;
  });
  expect_codes(ranks, 2);
  EXPECT_LT(ranks[1].seconds, 20);
}

TEST(World, EndsWithTheCodeThatARankReturned) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 1) return 17;
    std::promise<void> end;
    world.on_failure([&](const std::string&) { end.set_value(); });
    end.get_future().get();
    throw CommError("broken");
  });
  expect_codes(ranks, 17);
  expect_one_message(ranks, "");
}

TEST(World, NoticesThatRank0WasKilled) {
  const auto ranks = run_world(3, [](World& world) -> int {
    world.join(options_with());
    if (world.environment().rank == 0) {
      std::this_thread::sleep_for(milliseconds(300));
      ::raise(SIGKILL);
    }
    std::promise<void> end;
    world.on_failure([&](const std::string&) { end.set_value(); });
    end.get_future().get();
    throw CommError("broken");
  });
  EXPECT_EQ(ranks[0].code, 128 + SIGKILL);
  EXPECT_EQ(ranks[1].code, 1);
  EXPECT_EQ(ranks[2].code, 1);
  EXPECT_LT(ranks[2].seconds, 10);
}

/// Kills this process after a time, even while it is suspended.
void end_me_after(unsigned time_s) {
  const pid_t self = ::getpid();
  if (::fork() != 0) return;
  ::sleep(time_s);
  ::kill(self, SIGKILL);
  ::_exit(0);
}

/// Joins the run. Rank 0 returns after all other ranks have.
void join_before_rank_0(World& world, milliseconds timeout) {
  world.join(options_with({}, timeout));
  const std::int64_t rank = world.environment().rank;
  const auto key = [](std::int64_t of) { return "joined/" + std::to_string(of); };
  if (rank != 0) return world.store()->set(key(rank), "1");
  for (std::int64_t other = 1; other < world.environment().world_size; ++other)
    world.store()->poll(key(other), milliseconds(20'000));
}

/// The store's host neither answers nor closes its connections. Every wait for it ends, and one
/// rank per host reports why.
TEST(World, EndsWithoutARank0ThatIsStopped) {
  const auto ranks = run_world(3, [](World& world) -> int {
    join_before_rank_0(world, milliseconds(2'000));
    if (world.environment().rank == 0) {
      end_me_after(9);
      ::raise(SIGSTOP);
    }
    std::promise<void> end;
    world.on_failure([&](const std::string&) { end.set_value(); });
    end.get_future().get();
    throw CommError("broken");
  });
  EXPECT_EQ(ranks[1].code, 1);
  EXPECT_EQ(ranks[2].code, 1);
  EXPECT_THAT(ranks[1].errors,
              testing::MatchesRegex("megatron pretrain: error: rank 0, which hosts the run's store "
                                    "at .*, has not answered for 2 s: "
                                    "its process is stopped, or the network is cut\n"));
  EXPECT_EQ(ranks[2].errors, "");
}

/// This rank cannot publish its own failure, so it prints it.
TEST(World, EndsWithItsOwnWordsWhenRank0IsStopped) {
  const auto ranks = run_world(2, [](World& world) -> int {
    join_before_rank_0(world, milliseconds(60'000));
    if (world.environment().rank == 0) {
      end_me_after(9);
      ::raise(SIGSTOP);
    }
    std::this_thread::sleep_for(milliseconds(1'000));
    throw UserError({"a file", "is gone", ""});
  });
  EXPECT_EQ(ranks[1].code, 2);
  EXPECT_THAT(ranks[1].errors, HasSubstr("error: a file: is gone"));
}

/// Rank 0 has finished, but another rank never ends.
TEST(World, NamesARankThatDoesNotLeave) {
  const auto ranks = run_world(3, [](World& world) {
    world.join(options_with({}, milliseconds(2'000)));
    if (world.environment().rank == 2) {
      end_me_after(9);
      ::raise(SIGSTOP);
    }
    return 0;
  });
  EXPECT_EQ(ranks[0].code, 1);
  EXPECT_THAT(ranks[0].errors,
              HasSubstr("error: the end of this run: rank 2 did not end within 2 s after rank 0"));
}

/// No transport watches the rank yet; the store loses its connection.
TEST(World, NoticesThatARankWasKilled) {
  const auto ranks = run_world(3, [](World& world) {
    world.join(options_with());
    if (world.environment().rank == 2) ::raise(SIGKILL);
    std::promise<void> failed;
    world.on_failure([&](const std::string& reason) {
      failed.set_exception(std::make_exception_ptr(CommError(reason)));
    });
    failed.get_future().get();
    return 0;
  });
  EXPECT_EQ(ranks[0].code, 1);
  EXPECT_EQ(ranks[1].code, 1);
  EXPECT_LT(ranks[1].seconds, 20);
  EXPECT_THAT(ranks[0].errors, HasSubstr("error: the connection to rank 2 on "));
  EXPECT_THAT(ranks[0].errors, HasSubstr("is lost: the process died, the host is down"));
}

/// A rank that is killed after its last call leaves nobody waiting for the whole timeout.
TEST(World, NoticesARankThatDiesAtTheEnd) {
  const auto ranks = run_world(3, [](World& world) {
    world.join(options_with());
    auto communicators = world.make_communicators(world.process_options());
    world.set_failure_notice(communicators->failure_notice());
    communicators.reset();
    if (world.environment().rank == 2) ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ranks[0].code, 1);
  EXPECT_LT(ranks[0].seconds, 15);
  // On a busy machine the store may notice first.
  EXPECT_THAT(
      ranks[0].errors,
      testing::AnyOf(HasSubstr("rank 2 died after the last step, before the end of the run"),
                     HasSubstr("the connection to rank 2 on ")));
}

TEST(World, RefusesARankThatWasStartedTwice) {
  const auto ranks = run_world(
      3,
      [](World& world) {
        world.join(options_with());
        return 0;
      },
      [](LaunchEnvironment& environment) {
        environment.rank = std::min<std::int64_t>(environment.rank, 1);
      });
  expect_codes(ranks, 2);
  EXPECT_THAT(ranks[0].errors, HasSubstr("rank 1 was started twice: on "));
}

TEST(World, NamesAPortInUse) {
  const ListeningSocket taken({.port = 0, .loopback_only = true});
  const auto ranks = fork_ranks(1, [&](std::int64_t rank) {
    return run_command("pretrain", [&] {
      return run_rank(
          "pretrain", [](World& world) { return world.join(options_with()), 0; },
          environment_of(rank, 2, taken.port()));
    });
  });
  expect_codes(ranks, 2);
  EXPECT_THAT(ranks[0].errors, HasSubstr("error: port " + std::to_string(taken.port()) +
                                         " of this host: is in use by another process"));
  EXPECT_LT(ranks[0].seconds, 3);
}

TEST(World, NamesAMasterThatNobodyKnows) {
  const auto ranks = fork_ranks(
      1,
      [&](std::int64_t) {
        LaunchEnvironment environment = environment_of(1, 2, 29500);
        environment.master_addr = "no-such-host.invalid";
        return run_command("pretrain", [&] {
          return run_rank(
              "pretrain", [](World& world) { return world.join(options_with()), 0; }, environment);
        });
      },
      60);
  expect_codes(ranks, 2);
  EXPECT_THAT(
      ranks[0].errors,
      HasSubstr("error: the host of rank 0, no-such-host.invalid: its name is not known here"));
}

TEST(World, NamesAMasterThatDoesNotAnswer) {
  const std::int64_t port = free_port();
  const auto ranks = fork_ranks(
      1,
      [&](std::int64_t) {
        return run_command("pretrain", [&] {
          return run_rank(
              "pretrain",
              [](World& world) { return world.join(options_with({}, milliseconds(7000))), 0; },
              environment_of(1, 2, port));
        });
      },
      60);
  expect_codes(ranks, 2);
  EXPECT_THAT(ranks[0].errors,
              testing::ContainsRegex("waiting for rank 0 at 127.0.0.1:" + std::to_string(port) +
                                     " .[5-7] s.: Connection refused\n"));
  EXPECT_THAT(ranks[0].errors, HasSubstr("error: rank 0 at 127.0.0.1:" + std::to_string(port) +
                                         ": does not answer after"));
  EXPECT_THAT(ranks[0].errors, HasSubstr("other hosts need another --master-addr than 127.0.0.1"));
}

TEST(RankList, IsShort) {
  EXPECT_EQ(rank_list_text({3}), "3");
  EXPECT_EQ(rank_list_text({3, 4}), "3, 4");
  EXPECT_EQ(rank_list_text({0, 1, 2, 5, 7, 8, 9}), "0-2, 5, 7-9");
}

TEST(FirstDifference, IsNamedFromBothSides) {
  EXPECT_EQ(first_difference({{"--a", "1"}}, {{"--a", "1"}}), "");
  EXPECT_EQ(first_difference({{"--a", "1"}}, {{"--a", "2"}}), "with --a 1, rank 0 with --a 2");
  EXPECT_EQ(first_difference({}, {{"--a", "2"}}), "without --a, rank 0 with --a 2");
  EXPECT_EQ(first_difference({{"--a", ""}}, {}), "with --a '', rank 0 without --a");
  EXPECT_EQ(first_difference({{"--a", "1"}, {"--b", "1"}, {"--c", "1"}},
                             {{"--a", "2"}, {"--b", "2"}, {"--c", "2"}}),
            "with --a 1, rank 0 with --a 2 (and 2 more settings differ)");
}

}  // namespace
}  // namespace megatron
