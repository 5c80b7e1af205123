// Ranks as processes: shared memory, Gloo and both give the same results, the end of a peer is
// reported by name, and no files remain.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "parallel/rank_processes.h"
#include "support/rank_numbers.h"

namespace megatron {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

/// Not a test: the body of a child process.
TEST(RankProcess, DISABLED_Body) {
  if (child_variable("MEGATRON_TEST_BODY").empty()) GTEST_SKIP() << "started by other tests";
  const int code = run_child();
  std::exit(code);
}

std::vector<std::string> one_host(std::size_t ranks) {
  return std::vector<std::string>(ranks, "a");
}

void expect_all_well(const ProcessPlan& plan) {
  RankProcesses processes(plan);
  const std::vector<ProcessEnd> ends = processes.ends();
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].code, 0) << "rank " << rank << " of " << plan.body << ": "
                                  << ends[rank].text << " signal " << ends[rank].signal;
  }
}

/// Lists the files of shared memory, without the scratch folders of test programs that run at the
/// same time.
std::set<std::string> files_of_shared_memory() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = file.path().filename();
    if (!name.starts_with("megatron-test-") && !name.starts_with("megatron-killed-"))
      names.insert(name);
  }
  return names;
}

/// Returns values with exact sums, so that every transport must give bit-identical results.
at::Tensor values_of(std::int64_t rank, std::int64_t elements, at::ScalarType type) {
  return at::arange(elements, at::kLong).mul(7).add(rank * 3).remainder(16).to(type);
}

/// Rank r has (r + 1) · elements rows for every rank.
void check_uneven_collectives(Comm& comm, std::int64_t elements, at::ScalarType type) {
  const std::int64_t world = comm.size(), own = comm.rank();
  std::vector<std::int64_t> rows;
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    rows.push_back((rank + 1) * elements);
    parts.push_back(values_of(rank, rows.back(), type));
  }
  const at::Tensor whole = at::cat(parts);
  at::Tensor gathered = at::empty_like(whole);
  comm.all_gather(gathered, parts[static_cast<std::size_t>(own)], "uneven", rows);
  EXPECT_TRUE(at::equal(gathered, whole));
  at::Tensor mixed = at::empty_like(whole);
  const std::vector<std::int64_t> same(static_cast<std::size_t>(world), (own + 1) * elements);
  const std::vector<at::Tensor> copies(static_cast<std::size_t>(world),
                                       parts[static_cast<std::size_t>(own)]);
  comm.all_to_all(mixed, at::cat(copies), "uneven", {.out = rows, .in = same});
  EXPECT_TRUE(at::equal(mixed, whole));
}

void check_every_collective(Comm& comm, std::int64_t elements, at::ScalarType type) {
  const std::int64_t world = comm.size();
  at::Tensor sum = at::zeros({elements * world}, type);
  std::vector<at::Tensor> inputs;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    inputs.push_back(values_of(rank, elements * world, type));
    sum += inputs.back();
  }
  const at::Tensor& mine = inputs[static_cast<std::size_t>(comm.rank())];
  const auto own = [&](const at::Tensor& whole) {
    return whole.narrow(0, comm.rank() * elements, elements);
  };
  at::Tensor reduced = mine.clone(), part = at::empty({elements}, type),
             whole = at::empty_like(sum), mixed = at::empty_like(sum);
  comm.all_reduce(reduced, "gradients");
  EXPECT_TRUE(at::equal(reduced, sum));
  comm.reduce_scatter(part, mine, "shards");
  EXPECT_TRUE(at::equal(part, own(sum)));
  comm.all_gather(whole, part, "weights");
  EXPECT_TRUE(at::equal(whole, sum));
  comm.all_to_all(mixed, mine, "tokens");
  for (std::int64_t rank = 0; rank < world; ++rank) {
    EXPECT_TRUE(at::equal(mixed.narrow(0, rank * elements, elements),
                          own(inputs[static_cast<std::size_t>(rank)])));
  }
  check_uneven_collectives(comm, elements, type);
  for (std::int64_t root = 0; root < world; ++root) {
    at::Tensor sent = mine.clone();
    comm.broadcast(sent, root, "seed");
    EXPECT_TRUE(at::equal(sent, inputs[static_cast<std::size_t>(root)]));
  }
  const std::int64_t next = (comm.rank() + 1) % world, previous = (comm.rank() + world - 1) % world;
  at::Tensor received = at::empty_like(mine);
  const PendingWork sending = comm.start_send(mine, next, "activations");
  comm.recv(received, previous, "activations");
  sending->wait();
  EXPECT_TRUE(at::equal(received, inputs[static_cast<std::size_t>(previous)]));
  comm.barrier("end");
}

const RankBodyOf kCollectives("collectives", [](Communicators& world) {
  const auto comm = world.group(first_ranks(world.world_size()), "world");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
    for (const std::int64_t elements : {0, 5, 3000}) check_every_collective(*comm, elements, type);
  }
  check_every_collective(*comm, 100'000, at::kFloat);
});

TEST(ProcessCommunicators, CollectivesInSharedMemory) {
  expect_all_well({.body = "collectives", .hosts = one_host(3), .transport = "shared-memory"});
}

TEST(ProcessCommunicators, CollectivesOverGloo) {
  expect_all_well({.body = "collectives", .hosts = one_host(3), .transport = "gloo"});
}

TEST(ProcessCommunicators, CollectivesOverHostsWithEquallyManyRanks) {
  expect_all_well({.body = "collectives", .hosts = {"a", "b", "a", "b"}});
}

TEST(ProcessCommunicators, CollectivesOverHostsWithUnequalRanks) {
  expect_all_well({.body = "collectives", .hosts = {"a", "a", "b"}});
}

/// So many ranks do not greet each other in pairs.
const RankBodyOf kLargeGroup("large group", [](Communicators& world) {
  const std::int64_t size = world.world_size(), rank = world.rank();
  const auto comm = world.group(first_ranks(size), "world");
  for (const std::int64_t elements : {0, 3, 300, 5000})
    check_every_collective(*comm, elements, at::kFloat);
  comm->barrier("all are equal");
  at::Tensor one = at::ones({2});
  comm->all_reduce(one, rank == 5 ? "other" : "same");
});

TEST(ProcessCommunicators, ALargeGroupAsksItsFirstRank) {
  RankProcesses processes({.body = "large group", .hosts = one_host(18), .transport = "gloo"});
  const std::vector<ProcessEnd> ends = processes.ends();
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_THAT(ends[rank].text, HasSubstr(rank == 5 ? "rank 0" : "rank 5")) << rank;
    EXPECT_THAT(ends[rank].text, HasSubstr("all_reduce 'other'")) << rank;
    EXPECT_THAT(ends[rank].text, HasSubstr("all_reduce 'same'")) << rank;
  }
}

/// Rank 0 asks for a message from a rank that never calls, and its group ends before they connect.
const RankBodyOf kGroupWithoutALink("group without a link", [](Communicators& world) {
  const auto comm = world.group(first_ranks(2), "pp");
  if (world.rank() == 1) return;
  const at::Tensor out = at::zeros({100'000});
  const PendingWork work = comm->start_recv(out, 1, "never");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  world.abort("this rank has enough");
  work->wait();
});

TEST(ProcessCommunicators, AGroupEndsBeforeItsRanksConnect) {
  RankProcesses processes({.body = "group without a link",
                           .hosts = one_host(2),
                           .transport = "gloo",
                           .timeout_ms = 90'000});
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ProcessEnd> ends = processes.ends();
  EXPECT_EQ(ends[0].signal, 0);
  EXPECT_THAT(ends[0].text, HasSubstr("this rank has enough"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

/// The ranks of a host form a group of their own and are one host's part of a larger group, which
/// its first rank makes late.
const RankBodyOf kSameRanksTwice("same ranks twice", [](Communicators& world) {
  const std::int64_t first = world.rank() / 2 * 2;
  const auto alone = world.group({first, first + 1}, "tp");
  check_every_collective(*alone, 5, at::kFloat);
  if (world.rank() == first) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto all = world.group(first_ranks(world.world_size()), "world");
  for (int i = 0; i < 20; ++i) {
    check_every_collective(*all, 5, at::kFloat);
    check_every_collective(*alone, 5, at::kFloat);
  }
});

TEST(ProcessCommunicators, AHostsRanksMayBeAGroupOfTheirOwn) {
  expect_all_well({.body = "same ranks twice", .hosts = {"a", "a", "b", "b"}});
}

const RankBodyOf kManyGroups("many groups", [](Communicators& world) {
  const std::int64_t pair = world.rank() / 2 * 2;
  const auto tp = world.group({pair, pair + 1}, "tp"),
             dp = world.group({world.rank() % 2, world.rank() % 2 + 2}, "dp");
  at::Tensor a = at::full({10}, static_cast<double>(world.rank())), b = a.clone();
  const PendingWork first = tp->start_all_reduce(a, "a"), second = dp->start_all_reduce(b, "b");
  second->wait();
  first->wait();
  EXPECT_EQ(a[0].item<double>(), static_cast<double>(2 * pair + 1));
  EXPECT_EQ(b[0].item<double>(), static_cast<double>(2 * (world.rank() % 2) + 2));
});

TEST(ProcessCommunicators, OverlappingGroups) {
  expect_all_well({.body = "many groups", .hosts = one_host(4)});
}

const RankBodyOf kOneWaits("one is killed", [](Communicators& world) {
  const auto comm = world.group(first_ranks(world.world_size()), "dp");
  comm->barrier("start");
  if (world.rank() == 1) ::raise(SIGKILL);
  comm->barrier("end");
});

void expect_death_is_named(ProcessPlan plan) {
  plan.timeout_ms = 90'000;
  const auto begin = std::chrono::steady_clock::now();
  RankProcesses processes(plan);
  const std::vector<ProcessEnd> ends = processes.ends();
  EXPECT_EQ(ends[1].signal, SIGKILL);
  EXPECT_EQ(ends[0].code, 1);
  EXPECT_EQ(ends[2].code, 1);
  EXPECT_THAT(ends[0].text, AnyOf(HasSubstr("barrier 'end' on dp: rank 1 died"),
                                  HasSubstr("barrier 'end' on dp: rank 1 is gone")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(ProcessCommunicators, ADeadPeerIsNamed) {
  expect_death_is_named({.body = "one is killed", .hosts = one_host(3)});
}

TEST(ProcessCommunicators, ADeadPeerOnAnotherHostIsNamed) {
  expect_death_is_named({.body = "one is killed", .hosts = {"a", "b", "c"}});
}

const RankBodyOf kOneFails("one fails", [](Communicators& world) {
  const auto comm = world.group(first_ranks(world.world_size()), "dp");
  comm->barrier("start");
  if (world.rank() == 1) throw std::runtime_error("out of luck");
  comm->barrier("end");
});

TEST(ProcessCommunicators, AFailureIsTheFailureOfAllOnEveryHost) {
  for (const bool watches_store : {true, false}) {
    for (const std::vector<std::string>& hosts :
         {one_host(3), {"a", "b", "b"}, {"a", "b", "a", "b"}}) {
      RankProcesses processes(
          {.body = "one fails", .hosts = hosts, .watches_store = watches_store});
      const std::vector<ProcessEnd> ends = processes.ends();
      for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        EXPECT_EQ(ends[rank].text,
                  rank == 1 ? "out of luck" : "barrier 'end' on dp: rank 1 failed: out of luck")
            << watches_store;
      }
    }
  }
}

RankBody rank_1_absent_for(std::chrono::seconds time) {
  return [time](Communicators& world) {
    const auto comm = world.group(first_ranks(world.world_size()), "dp");
    if (world.rank() == 1) return std::this_thread::sleep_for(time);
    comm->barrier("end");
  };
}

const RankBodyOf kOneAbsent("one is absent", rank_1_absent_for(std::chrono::seconds(5)));
const RankBodyOf kOneAbsentForLong("one is absent for long",
                                   rank_1_absent_for(std::chrono::seconds(20)));

TEST(ProcessCommunicators, ATimeoutNamesTheAbsent) {
  for (const char* transport : {"shared-memory", "gloo"}) {
    RankProcesses processes({.body = "one is absent",
                             .hosts = one_host(3),
                             .transport = transport,
                             .timeout_ms = 2000});
    // Either this rank or rank 2 times out first, whichever began to wait first.
    EXPECT_THAT(processes.ends()[0].text,
                HasSubstr("barrier 'end' on dp: rank 1 has not arrived after 2 s"))
        << transport;
  }
}

/// The others wait for the first rank, which waits for the absent one. Under ThreadSanitizer 18
/// processes need more than two seconds to meet, which the same timeout limits.
TEST(ProcessCommunicators, ATimeoutOfALargeGroupNamesTheAbsent) {
  RankProcesses processes({.body = "one is absent for long",
                           .hosts = one_host(18),
                           .transport = "gloo",
                           .timeout_ms = 10'000});
  const std::vector<ProcessEnd> ends = processes.ends();
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}, std::size_t{17}})
    EXPECT_THAT(ends[rank].text, HasSubstr("rank 1 has not arrived after 10 s")) << rank;
}

TEST(ProcessCommunicators, LeaveNothingInSharedMemory) {
  const std::set<std::string> before = files_of_shared_memory();
  expect_all_well({.body = "collectives", .hosts = one_host(2)});
  RankProcesses processes({.body = "one is absent", .hosts = one_host(3), .timeout_ms = 10'000});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  for (std::size_t rank = 0; rank < 3; ++rank) ::kill(processes.process(rank), SIGKILL);
  processes.ends();
  EXPECT_EQ(files_of_shared_memory(), before);
}

}  // namespace
}  // namespace megatron
