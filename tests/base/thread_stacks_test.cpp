// Stacks of threads that wait in the kernel.
#include "megatron/base/thread_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

namespace megatron {
namespace {

using testing::HasSubstr;

/// ThreadSanitizer delivers a signal only when the thread returns from the kernel.
#ifdef __SANITIZE_THREAD__
constexpr bool kSignalsAreLate = true;
#else
constexpr bool kSignalsAreLate = false;
#endif

/// A thread that waits in read() until its end.
class WaitingThread {
 public:
  WaitingThread() {
    EXPECT_EQ(::pipe(ends_), 0);
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "waiting");
      id_ = ::syscall(SYS_gettid);
      char byte = 0;
      num_read_ = ::read(ends_[0], &byte, 1);
    });
    while (id_ == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ~WaitingThread() {
    EXPECT_EQ(::write(ends_[1], "x", 1), 1);
    thread_.join();
    EXPECT_EQ(num_read_, 1) << "the signal ended the read";
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  std::int64_t id() const { return id_; }

 private:
  int ends_[2] = {};
  std::atomic<std::int64_t> id_{0};
  std::atomic<ssize_t> num_read_{0};
  std::thread thread_;
};

TEST(ThreadStacks, ShowWhereAThreadWaits) {
  if (kSignalsAreLate) GTEST_SKIP() << "ThreadSanitizer delays signals";
  const WaitingThread waiting;
  const std::vector<ThreadStack> stacks = thread_stacks();
  const auto found = std::ranges::find(stacks, waiting.id(), &ThreadStack::thread);
  ASSERT_NE(found, stacks.end());
  EXPECT_EQ(found->name, "waiting");
  EXPECT_THAT(found->frames.at(0), HasSubstr("read"));
  EXPECT_EQ(std::ranges::count(stacks, std::int64_t{::syscall(SYS_gettid)}, &ThreadStack::thread),
            0)
      << "the caller's own stack says nothing";
}

TEST(ThreadStacks, TheMainThreadIsFirst) {
  if (kSignalsAreLate) GTEST_SKIP() << "ThreadSanitizer delays signals";
  const auto stacks = std::async(std::launch::async, [] { return thread_stacks(); });
  stacks.wait();
  const auto main = std::async(std::launch::async, [] { return main_thread_stack(); }).get();
  EXPECT_EQ(main.thread, ::getpid());
  EXPECT_FALSE(main.frames.empty());
}

/// Requests of several threads at once must not mix their stacks.
TEST(ThreadStacks, RequestsRunOneAfterTheOther) {
  if (kSignalsAreLate) GTEST_SKIP() << "ThreadSanitizer delays signals";
  const WaitingThread waiting;
  std::vector<std::future<std::vector<ThreadStack>>> requests;
  for (int i = 0; i < 4; ++i)
    requests.push_back(std::async(std::launch::async, [] { return thread_stacks(); }));
  for (auto& request : requests) {
    const std::vector<ThreadStack> stacks = request.get();
    const auto found = std::ranges::find(stacks, waiting.id(), &ThreadStack::thread);
    ASSERT_NE(found, stacks.end());
    EXPECT_THAT(found->frames.at(0), HasSubstr("read"));
  }
}

TEST(ThreadStacks, FunctionNamesHaveNoArguments) {
  EXPECT_EQ(function_name("_ZN8megatron4saveERKNSt10filesystem7__cxx114pathE"), "megatron::save");
  EXPECT_EQ(function_name("_ZN8megatron12_GLOBAL__N_14waitEi"), "megatron::wait");
  EXPECT_EQ(function_name("_ZN8megatron3addIiEEvT_"), "megatron::add<int>");
  EXPECT_EQ(function_name("_ZNK8megatron3AddclEi"), "megatron::Add::operator()");
  EXPECT_EQ(function_name("read"), "read");
}

TEST(ThreadStacks, ALineNamesTheInnermostFunctionAndOurs) {
  const ThreadStack stack{.thread = 1,
                          .name = "",
                          .frames = {"read", "c10d::receive", "megatron::wait", "megatron::wait",
                                     "at::add", "megatron::train", "megatron::run", "main"}};
  EXPECT_EQ(short_stack(stack, 2), "read < megatron::wait < megatron::train");
  EXPECT_EQ(short_stack({}), "");
}

}  // namespace
}  // namespace megatron
