#include "megatron/base/thread_limit.h"

#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

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
    throw UserError({std::to_string(count) + " threads",
                     std::string("cannot start: ") + error.what(),
                     "raise the limits of memory (ulimit -d and -v) and of threads (ulimit -u), or "
                     "set OMP_NUM_THREADS to fewer"});
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace megatron
