#include "megatron/parallel/failure/process_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace megatron {

ProcessWatch::ProcessWatch(std::int32_t process)
    : process_(process), handle_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {}

bool ProcessWatch::has_ended() const {
  if (!handle_.is_open()) return ::kill(process_, 0) != 0 && errno == ESRCH;
  pollfd state{.fd = handle_.number(), .events = POLLIN, .revents = 0};
  return ::poll(&state, 1, 0) > 0;
}

}  // namespace megatron
