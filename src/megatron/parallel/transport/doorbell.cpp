#include "megatron/parallel/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace megatron {

// Whoever sleeps counts itself first and then compares `ticks_` in the kernel; whoever rings changes `ticks_` first and then looks for sleepers.
// Both in sequentially consistent order, so one of them sees the other.
void Doorbell::ring() {
  ticks_.fetch_add(1);
  if (sleepers_.load() > 0) ::syscall(SYS_futex, &ticks_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(std::uint32_t seen, std::chrono::milliseconds limit) {
  const timespec time{.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000};
  sleepers_.fetch_add(1);
  ::syscall(SYS_futex, &ticks_, FUTEX_WAIT, seen, &time, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace megatron
