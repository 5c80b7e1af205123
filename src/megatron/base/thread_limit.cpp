#include "megatron/base/thread_limit.h"

#include <latch>
#include <thread>
#include <vector>

namespace megatron {

UserError thread_error(const std::string& what, const std::system_error& cause) {
  return UserError({what, std::string("cannot start: ") + cause.what(),
                    "raise the limits of memory (ulimit -d and -v) and of threads (ulimit -u), or "
                    "set OMP_NUM_THREADS to fewer"});
}

void check_threads_start(std::int64_t count) {
  std::latch all_tried(1);
  std::vector<std::thread> threads;
  const auto end = [&] {
    all_tried.count_down();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    threads.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) threads.emplace_back([&] { all_tried.wait(); });
  } catch (const std::system_error& error) {
    end();
    throw thread_error(std::to_string(count) + " threads", error);
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace megatron
