#include "megatron/base/thread_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Limits the memory of a process, which must end then, and returns the exit code of the check.
int code_under_limit(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    check_threads_start(64);
    return 0;
  } catch (const UserError& error) {
    return std::string(error.what()).find("64 threads: cannot start") != std::string::npos ? 2 : 1;
  }
}

TEST(ThreadLimit, ThreadsStart) {
  check_threads_start(0);
  check_threads_start(20);
}

TEST(ThreadLimit, ThreadsWithoutMemoryAreAnErrorOfTheUser) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than the limit leaves";
#endif
  EXPECT_EXIT(std::exit(code_under_limit(rlim_t{400} << 20)), testing::ExitedWithCode(2), "");
}

}  // namespace
}  // namespace megatron
