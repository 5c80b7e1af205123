// Overlapped pairs: the order of both functions' work is fixed, waits overlap with the other's
// work, and one function's error ends both.
#include "megatron/pipeline/overlapped_pair.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "megatron/parallel/rank_threads.h"
#include "support/rank_numbers.h"

namespace megatron {
namespace {

using testing::ElementsAre;

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

std::int64_t num_threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

/// Appends name1, name2, … to the log and yields after each.
std::function<void()> steps(OverlappedPair& turns, std::vector<std::string>& log,
                            const std::string& name, int count) {
  return [&turns, &log, name, count] {
    for (int i = 1; i <= count; ++i) {
      log.push_back(name + std::to_string(i));
      turns.yield();
    }
  };
}

TEST(OverlappedPair, ChangeAtEveryHandOver) {
  OverlappedPair turns;
  std::vector<std::string> log;
  turns.run(steps(turns, log, "a", 3), steps(turns, log, "b", 3));
  EXPECT_THAT(log, ElementsAre("a1", "b1", "a2", "b2", "a3", "b3"));
}

TEST(OverlappedPair, TheOneThatIsLeftGoesOn) {
  OverlappedPair turns;
  std::vector<std::string> log;
  turns.run(steps(turns, log, "a", 1), steps(turns, log, "b", 3));
  turns.run(steps(turns, log, "c", 3), steps(turns, log, "d", 1));
  EXPECT_THAT(log, ElementsAre("a1", "b1", "b2", "b3", "c1", "d1", "c2", "c3"));
}

TEST(OverlappedPair, WithoutHandingOverOneRunsAfterTheOther) {
  OverlappedPair turns;
  std::vector<int> log;
  turns.run([&] { log.push_back(1); }, [&] { log.push_back(2); });
  EXPECT_THAT(log, ElementsAre(1, 2));
}

TEST(OverlappedPair, MakeAThreadForTheFirstPairOnly) {
  OverlappedPair turns;
  const std::int64_t before = num_threads_of_process();
  turns.yield();
  EXPECT_FALSE(turns.is_running());
  EXPECT_EQ(num_threads_of_process(), before);
  std::set<std::thread::id> threads;
  for (int i = 0; i < 3; ++i)
    turns.run([&] { EXPECT_TRUE(turns.is_running()); },
              [&] { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(num_threads_of_process(), before + 1);
  EXPECT_EQ(threads.size(), 1U);
}

TEST(OverlappedPair, BothComputeAsTheCallerDoes) {
  OverlappedPair turns;
  const int threads = at::get_num_threads();
  for (const int num_threads : {1, 2, 1}) {
    for (const bool mode : {true, false}) {
      at::set_num_threads(num_threads);
      const at::AutoGradMode grad_mode(mode);
      const auto check = [&] {
        EXPECT_EQ(at::GradMode::is_enabled(), mode);
        EXPECT_EQ(at::get_num_threads(), num_threads);
      };
      turns.run(check, check);
    }
  }
  at::set_num_threads(threads);
}

TEST(OverlappedPair, AnErrorOfTheFirstEndsTheSecond) {
  OverlappedPair turns;
  std::string seen;
  const auto second = [&] { seen = failure_of([&] { turns.yield(); }); };
  const auto first = [&] {
    turns.yield();
    throw std::runtime_error("out of order");
  };
  EXPECT_EQ(failure_of([&] { turns.run(first, second); }), "out of order");
  EXPECT_EQ(seen, "the other step of a joined pair failed");
}

TEST(OverlappedPair, AnErrorOfTheSecondEndsTheFirst) {
  OverlappedPair turns;
  std::vector<int> reached;
  const auto first = [&] {
    reached.push_back(1);
    turns.yield();
    reached.push_back(2);
  };
  EXPECT_EQ(failure_of([&] { turns.run(first, [] { throw std::runtime_error("no memory"); }); }),
            "no memory");
  EXPECT_THAT(reached, ElementsAre(1));
}

TEST(OverlappedPair, ASecondThatHasNotBegunNeverDoes) {
  OverlappedPair turns;
  bool began = false;
  EXPECT_EQ(failure_of([&] {
              turns.run([] { throw std::runtime_error("at once"); }, [&] { began = true; });
            }),
            "at once");
  EXPECT_FALSE(began);
  turns.run([] {}, [&] { began = true; });
  EXPECT_TRUE(began) << "a pair after a failed one";
}

/// A collective that is done once somebody has computed since its start. Counts the waits for
/// collectives that are not done.
class SlowComm final : public Comm {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 2; }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }
  void compute() { ++num_computed_; }
  int num_exposed() const { return num_exposed_; }

 protected:
  PendingWork start(CommCall /*call*/) override { return std::make_unique<SlowWork>(*this); }
  void run(CommCall call) override { start(std::move(call))->wait(); }

 private:
  class SlowWork final : public Work {
   public:
    explicit SlowWork(SlowComm& comm) : comm_(comm) {}
    void wait() override { comm_.num_exposed_ += comm_.num_computed_ == started_at_; }

   private:
    SlowComm& comm_;
    const int started_at_ = comm_.num_computed_;
  };
  std::string name_ = "tp";
  std::vector<std::int64_t> ranks_{0, 1};
  std::atomic<int> num_computed_{0}, num_exposed_{0};
};

/// Every wait but the last overlaps with the other's computation, because the other runs between
/// start and wait.
TEST(OverlappedComm, WaitsPassUnderTheOthersWork) {
  const auto slow = std::make_shared<SlowComm>();
  Axis axis{.name = "tp", .rank = 0, .size = 2, .comm = slow};
  enable_overlap({&axis}, c10::kCPU);
  const at::Tensor x = at::zeros({2}), y = at::zeros({2});
  const auto blocking = [&] {
    for (int i = 0; i < 4; ++i) {
      slow->compute();
      axis.comm->all_reduce(x, "forward");
    }
  };
  const auto started = [&] {
    for (int i = 0; i < 4; ++i) {
      slow->compute();
      axis.comm->start_all_reduce(y, "backward")->wait();
    }
  };
  overlapped_pair_of({&axis})->run(blocking, started);
  EXPECT_LE(slow->num_exposed(), 1);
}

/// Records the order of calls.
class NotingComm final : public Comm {
 public:
  explicit NotingComm(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return comm_->name(); }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }
  std::vector<std::string> order;

 protected:
  PendingWork start(CommCall call) override {
    order.emplace_back(call.what);
    return comm_->start_all_reduce(call.out, call.what);
  }
  void run(CommCall call) override { start(std::move(call))->wait(); }

 private:
  std::shared_ptr<Comm> comm_;
};

void delay(std::mt19937& random) {
  const auto length = std::uniform_int_distribution<int>(0, 4)(random);
  if (length > 0) std::this_thread::sleep_for(std::chrono::microseconds(length * 40));
}

/// Returns the order of a pair's collectives on one rank. `random` decides how long calls take.
std::vector<std::string> order_of_pair(Communicators& communicators, std::mt19937& random) {
  const auto noting = std::make_shared<NotingComm>(communicators.group({0, 1}, "tp"));
  Axis axis{.name = "tp", .rank = communicators.rank(), .size = 2, .comm = noting};
  enable_overlap({&axis}, c10::kCPU);
  const auto expect_sum = [](const at::Tensor& x, double sum) { EXPECT_EQ(x.item<double>(), sum); };
  const auto forward = [&] {
    for (int i = 0; i < 3; ++i) {
      const at::Tensor x = at::full({1}, static_cast<double>(i + axis.rank));
      delay(random);
      axis.comm->all_reduce(x, "forward");
      expect_sum(x, 2 * i + 1);
    }
  };
  const auto backward = [&] {
    for (int i = 0; i < 5; ++i) {
      const at::Tensor x = at::full({1}, 10.0 * static_cast<double>(i + axis.rank)),
                       y = at::full({1}, static_cast<double>(axis.rank));
      PendingWork first = axis.comm->start_all_reduce(x, "input gradient");
      delay(random);
      PendingWork second = axis.comm->start_all_reduce(y, "weight gradient");
      first->wait();
      delay(random);
      second->wait();
      expect_sum(x, 10 * (2 * i + 1));
      expect_sum(y, 1);
    }
  };
  overlapped_pair_of({&axis})->run(forward, backward);
  return noting->order;
}

TEST(OverlappedComm, TheOrderOfCallsIsTheSameHoweverLongTheyTake) {
  std::set<std::vector<std::string>> orders;
  std::mutex mutex;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run_rank_threads(2,
                   [&](Communicators& communicators) {
                     std::mt19937 random(seed + static_cast<unsigned>(communicators.rank()));
                     for (int i = 0; i < 100; ++i) {
                       const auto order = order_of_pair(communicators, random);
                       const std::lock_guard lock(mutex);
                       orders.insert(order);
                     }
                   },
                   {.timeout = std::chrono::seconds(20)});
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders.begin()->size(), 13U);
  EXPECT_EQ(orders.begin()->at(0), "forward");
  EXPECT_EQ(orders.begin()->at(1), "input gradient");
  EXPECT_EQ(orders.begin()->at(3), "forward");
}

TEST(OverlappedComm, PassesThroughWithoutAPair) {
  std::vector<double> results(2);
  run_rank_threads(2, [&](Communicators& communicators) {
    Axis axis{.name = "tp",
              .rank = communicators.rank(),
              .size = 2,
              .comm = communicators.group({0, 1}, "tp")};
    enable_overlap({&axis}, c10::kCPU);
    const at::Tensor x = at::ones({4});
    axis.comm->all_reduce(x, "outside");
    axis.comm->start_all_reduce(x, "outside")->wait();
    axis.comm->barrier("outside");
    results[static_cast<std::size_t>(axis.rank)] = x.sum().item<double>();
    EXPECT_EQ(axis.comm->name(), "tp");
  });
  EXPECT_THAT(results, ElementsAre(16, 16));
}

/// One rank's step fails while a call of the other step is under way. The call is cancelled, and
/// all ranks end with the first cause.
TEST(OverlappedComm, AFailureInAPairEndsAllRanks) {
  const std::string failure = failure_of_ranks(2, [](Communicators& communicators) {
    Axis axis{.name = "tp",
              .rank = communicators.rank(),
              .size = 2,
              .comm = communicators.group({0, 1}, "tp")};
    enable_overlap({&axis}, c10::kCPU);
    const at::Tensor x = at::ones({4}), y = at::ones({4});
    const auto second = [&] {
      if (axis.rank == 1) throw std::runtime_error("a NaN");
      axis.comm->all_reduce(y, "backward");
    };
    overlapped_pair_of({&axis})->run([&] { axis.comm->all_reduce(x, "forward"); }, second);
  });
  EXPECT_THAT(failure, testing::HasSubstr("a NaN"));
}

TEST(TakeTurns, NothingOnAnAxisOfOneRank) {
  Axis axis;
  enable_overlap({&axis}, c10::kCPU);
  EXPECT_EQ(axis.comm, nullptr);
  EXPECT_EQ(overlapped_pair_of({&axis}), nullptr);
}

}  // namespace
}  // namespace megatron
