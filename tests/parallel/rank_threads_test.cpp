// Rank threads: the failure of one rank ends all ranks in time and names the rank.
#include "megatron/parallel/rank_threads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "support/rank_numbers.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

/// The errors of all ranks, in no order, when `rank` fails after the ranks have started.
struct Endings {
  void add(const std::string& text) {
    const std::lock_guard lock(mutex);
    texts.push_back(text);
  }
  std::mutex mutex;
  std::vector<std::string> texts;
};

template <class Call>
void note_ending(Endings& endings, const Call& call) {
  try {
    call();
    endings.add("no error");
  } catch (const CommError& error) {
    endings.add(error.what());
    throw;
  }
}

TEST(RankThreads, EveryRankRunsOnceWithItsNumber) {
  std::atomic<int> mask{0};
  run_rank_threads(5, [&](Communicators& world) {
    mask += 1 << world.rank();
    EXPECT_EQ(world.world_size(), 5);
    EXPECT_EQ(world.group({world.rank()}, "tp"), nullptr);
  });
  EXPECT_EQ(mask.load(), 31);
}

TEST(RankThreads, AGroupIsMadeOnceAndKeepsTheNameOfEachRequest) {
  run_rank_threads(4, [](Communicators& world) {
    const auto comm = world.group(first_ranks(4), "dp");
    EXPECT_EQ(world.group(first_ranks(4), "dp"), comm);
    const auto other = world.group(first_ranks(4), "other");
    EXPECT_EQ(comm->name(), "dp");
    EXPECT_EQ(other->name(), "other");
    EXPECT_EQ(other->rank(), world.rank());
    EXPECT_EQ(other->ranks(), comm->ranks());
  });
}

TEST(RankThreads, AFailureNamesTheAxisThatWasCalled) {
  Endings endings;
  failure_of_ranks(2, [&](Communicators& world) {
    const auto dp = world.group({0, 1}, "dp"), ep = world.group({0, 1}, "ep");
    if (world.rank() == 1) throw std::runtime_error("out of luck");
    note_ending(endings, [&] { ep->barrier("start"); });
  });
  EXPECT_THAT(endings.texts, Each("barrier 'start' on ep: rank 1 failed: out of luck"));
  EXPECT_EQ(endings.texts.size(), 1);
}

TEST(RankThreads, TheFirstFailureEndsEveryWaitAndIsThrown) {
  Endings endings;
  const auto begin = std::chrono::steady_clock::now();
  const std::string failure = failure_of_ranks(4, [&](Communicators& world) {
    const auto comm = world.group(first_ranks(4), "dp");
    if (world.rank() == 3) throw std::runtime_error("out of luck");
    note_ending(endings, [&] { comm->barrier("start"); });
  });
  EXPECT_EQ(failure, "out of luck");
  EXPECT_THAT(endings.texts, Each("barrier 'start' on dp: rank 3 failed: out of luck"));
  EXPECT_EQ(endings.texts.size(), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(RankThreads, AFailureReachesGroupsWithoutTheRank) {
  Endings endings;
  failure_of_ranks(3, [&](Communicators& world) {
    if (world.rank() == 2) throw std::runtime_error("out of luck");
    const auto pair = world.group({0, 1}, "tp");
    at::Tensor tensor = at::zeros({4});
    if (world.rank() == 0) note_ending(endings, [&] { pair->recv(tensor, 1, "activations"); });
    if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(300));
  });
  EXPECT_THAT(endings.texts,
              testing::ElementsAre("recv 'activations' on tp: rank 2 failed: out of luck"));
}

TEST(RankThreads, ARankThatHasEndedIsNamed) {
  const std::string failure = failure_of_ranks(3, [&](Communicators& world) {
    if (world.rank() != 1) world.group(first_ranks(3), "dp")->barrier("end of step");
  });
  EXPECT_EQ(failure, "barrier 'end of step' on dp: rank 1 has ended");
}

TEST(RankThreads, ATimeoutNamesTheRanksThatHaveNotArrived) {
  std::atomic<bool> done{false};
  Endings endings;
  const std::string failure = failure_of_ranks(
      4,
      [&](Communicators& world) {
        const auto comm = world.group(first_ranks(4), "dp");
        at::Tensor norm = at::ones({});
        if (world.rank() >= 2) {
          while (!done) std::this_thread::sleep_for(milliseconds(1));
        } else {
          try {
            note_ending(endings, [&] { comm->all_reduce(norm, "grad norm"); });
          } catch (...) {
            done = true;
            throw;
          }
        }
      },
      milliseconds(200));
  EXPECT_THAT(failure,
              HasSubstr("all_reduce 'grad norm' on dp: ranks 2, 3 have not arrived after 0.2 s"));
}

TEST(RankThreads, RanksInDifferentCallsAreNamed) {
  const auto failing = [](const std::function<void(Comm&)>& first,
                          const std::function<void(Comm&)>& second) {
    return failure_of_ranks(2, [&](Communicators& world) {
      (world.rank() == 0 ? first : second)(*world.group({0, 1}, "tp"));
    });
  };
  const auto sum = [](std::int64_t elements, at::ScalarType type, const char* what,
                      ReduceOp op = ReduceOp::sum) {
    return [=](Comm& comm) { comm.all_reduce(at::zeros({elements}, type), what, op); };
  };
  EXPECT_THAT(failing(sum(4, at::kFloat, "a"), sum(4, at::kFloat, "b")),
              AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("'a' (4 Float)"),
                    HasSubstr("'b' (4 Float)")));
  EXPECT_THAT(failing(sum(4, at::kFloat, "a"), sum(5, at::kFloat, "a")),
              AllOf(HasSubstr("'a' (4 Float)"), HasSubstr("'a' (5 Float)")));
  EXPECT_THAT(failing(sum(4, at::kFloat, "a"), sum(4, at::kInt, "a")),
              AllOf(HasSubstr("'a' (4 Float)"), HasSubstr("'a' (4 Int)")));
  EXPECT_THAT(failing(sum(4, at::kFloat, "a"), sum(4, at::kFloat, "a", ReduceOp::max)),
              HasSubstr("ranks disagree"));
  EXPECT_THAT(failing(sum(4, at::kFloat, "a"), [](Comm& comm) { comm.barrier("a"); }),
              AllOf(HasSubstr("all_reduce 'a'"), HasSubstr("barrier 'a'")));
  const auto send = [](Comm& comm) { comm.send(at::zeros({7}), 1, "activations"); };
  EXPECT_THAT(
      failing(send, [](Comm& comm) { comm.recv(at::zeros({8}), 0, "activations"); }),
      AllOf(HasSubstr("send 'activations' (7 Float)"), HasSubstr("recv 'activations' (8 Float)")));
  EXPECT_THAT(failing(send, [](Comm& comm) { comm.recv(at::zeros({7}), 0, "gradients"); }),
              HasSubstr("recv 'gradients'"));
}

TEST(RankThreads, RowCountsThatDisagreeAreNamed) {
  const auto failing = [](const RowCounts& first, const RowCounts& second) {
    return failure_of_ranks(2, [&](Communicators& world) {
      const RowCounts& rows = world.rank() == 0 ? first : second;
      const auto total = [](const std::vector<std::int64_t>& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      };
      world.group({0, 1}, "ep")
          ->all_to_all(at::zeros({total(rows.out), 4}), at::zeros({total(rows.in), 4}), "tokens",
                       rows);
    });
  };
  EXPECT_EQ(failing({.out = {1, 2}, .in = {1, 5}}, {.out = {4, 0}, .in = {2, 0}}),
            "all_to_all 'tokens' on ep: rank 0 sends 5 rows to rank 1, which expects 4");
  const std::string gathers = failure_of_ranks(2, [](Communicators& world) {
    const std::vector<std::int64_t> rows{2, world.rank()};
    const std::int64_t own = world.rank() == 0 ? 2 : 1;
    world.group({0, 1}, "ep")
        ->all_gather(at::zeros({2 + world.rank(), 4}), at::zeros({own, 4}), "tokens", rows);
  });
  EXPECT_THAT(gathers, AllOf(HasSubstr("ranks disagree"), HasSubstr("(rows of 4 Float"),
                             HasSubstr("checksum of the row counts")));
}

TEST(RankThreads, AnExceptionOverPendingWorkDoesNotWaitForPeers) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string failure = failure_of_ranks(2, [](Communicators& world) {
    const auto comm = world.group({0, 1}, "dp");
    at::Tensor tensor = at::zeros({1000});
    if (world.rank() == 0) {
      const PendingWork work = comm->start_all_reduce(tensor, "gradients");
      throw std::runtime_error("out of luck");
    }
    std::this_thread::sleep_for(milliseconds(300));
    comm->all_reduce(tensor, "gradients");
  });
  EXPECT_EQ(failure, "out of luck");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(RankThreads, WrongShapesAreRefusedBeforeAnythingMoves) {
  const auto failing = [](const std::function<void(Comm&)>& call) {
    return failure_of_ranks(2, [&](Communicators& world) { call(*world.group({0, 1}, "tp")); });
  };
  EXPECT_THAT(failing([](Comm& comm) { comm.all_gather(at::zeros({3}), at::zeros({2}), "x"); }),
              HasSubstr("2 elements in, 3 out, 2 ranks"));
  EXPECT_THAT(failing([](Comm& comm) { comm.reduce_scatter(at::zeros({2}), at::zeros({2}), "x"); }),
              HasSubstr("2 elements in, 2 out"));
  EXPECT_THAT(failing([](Comm& comm) { comm.all_to_all(at::zeros({3}), at::zeros({3}), "x"); }),
              HasSubstr("equal parts"));
  EXPECT_THAT(
      failing([](Comm& comm) {
        comm.all_to_all(at::zeros({3, 2}), at::zeros({4, 2}), "x", {.out = {1, 1}, .in = {2, 2}});
      }),
      HasSubstr("the output has 3 rows, but the row counts sum to 2"));
  EXPECT_THAT(
      failing([](Comm& comm) {
        comm.all_to_all(at::zeros({2, 2}), at::zeros({4, 3}), "x", {.out = {1, 1}, .in = {2, 2}});
      }),
      HasSubstr("rows of [4, 3] in and of [2, 2] out"));
  EXPECT_THAT(failing([](Comm& comm) {
                comm.all_gather(at::zeros({5}), at::zeros({4}), "x", {2, 3});
              }),
              HasSubstr("the input has 4 rows, not"));
  EXPECT_THAT(failing([](Comm& comm) {
                comm.all_reduce(at::zeros({4, 4}).t(), "x");
              }),
              HasSubstr("a tensor of [4, 4] is not contiguous: strides [1, 4]"));
  EXPECT_THAT(failing([](Comm& comm) { comm.broadcast(at::zeros({4}), 2, "x"); }),
              HasSubstr("the group of 2 ranks has no rank 2"));
  EXPECT_THAT(failing([](Comm& comm) { comm.send(at::zeros({4}), comm.rank(), "x"); }),
              HasSubstr("a rank cannot send a message to itself"));
  EXPECT_THAT(failing([](Comm& comm) {
                comm.all_reduce(at::zeros({4}, at::kLong), "x", ReduceOp::average);
              }),
              HasSubstr("average of Long"));
}

}  // namespace
}  // namespace megatron
