#include "megatron/parallel/shared_memory/futex_event.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace megatron {

// A waiter first increments num_waiters_ and then compares `sequence_` in the kernel, which puts a
// full barrier before its load (kernel/futex/waitwake.c). The notifier first changes `sequence_`
// and then reads num_waiters_, both sequentially consistent. So at least one of them sees the
// other's change, on weakly ordered CPUs too.
void FutexEvent::notify_all() {
  sequence_.fetch_add(1);
  if (num_waiters_.load() > 0)
    ::syscall(SYS_futex, &sequence_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FutexEvent::wait(std::uint32_t seen, std::chrono::milliseconds limit) {
  const timespec time{.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000};
  num_waiters_.fetch_add(1);
  ::syscall(SYS_futex, &sequence_, FUTEX_WAIT, seen, &time, nullptr, 0);
  num_waiters_.fetch_sub(1);
}

}  // namespace megatron
