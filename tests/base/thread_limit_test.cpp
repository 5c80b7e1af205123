#include "megatron/base/thread_limit.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// The bytes of address space of this process. AddressSanitizer has reserved terabytes.
rlim_t address_space() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

/// Leaves a process, which must end then, memory for four of 64 threads, and returns the exit code
/// of the check. The rest is less than a stack and enough for what AddressSanitizer maps for each
/// thread.
int code_under_limit() {
  constexpr rlim_t kStack = rlim_t{64} << 20;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStack);
  ::pthread_setattr_default_np(&attributes);
  const rlim_t bytes = address_space() + 5 * kStack - (rlim_t{1} << 20);
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
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer needs more address space than the limit leaves";
#endif
  EXPECT_EXIT(std::exit(code_under_limit()), testing::ExitedWithCode(2), "");
}

}  // namespace
}  // namespace megatron
