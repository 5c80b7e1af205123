#include "megatron/base/stop_event.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {

StopEvent::StopEvent() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_.is_open())
    throw UserError({"cannot make an event", std::strerror(errno),
                     "raise the limit of open files (ulimit -n)"});
}

void StopEvent::set() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.number(), &one, sizeof one);
}

bool StopEvent::wait_readable(int descriptor) const {
  std::array<pollfd, 2> events{pollfd{descriptor, POLLIN, 0}, pollfd{event_.number(), POLLIN, 0}};
  while (::poll(events.data(), events.size(), -1) < 0 && errno == EINTR) {
  }
  return events[1].revents == 0;
}

}  // namespace megatron
