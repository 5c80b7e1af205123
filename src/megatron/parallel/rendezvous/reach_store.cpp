#include "megatron/parallel/rendezvous/reach_store.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

struct Attempt {
  bool is_connected = false;
  bool is_name_unknown = false;
  std::string reason;
};

/// Connects within a second, or says why not.
std::string try_address(const addrinfo& address) {
  const int descriptor = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return std::strerror(errno);
  int code = ::connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (code == EINPROGRESS) {
    pollfd event{descriptor, POLLOUT, 0};
    socklen_t length = sizeof code;
    code = ETIMEDOUT;
    if (::poll(&event, 1, 1000) == 1) ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length);
  }
  ::close(descriptor);
  return code == 0 ? "" : std::strerror(code);
}

Attempt try_once(const StoreAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (code != 0) return {.is_name_unknown = true, .reason = ::gai_strerror(code)};
  const AddressList list(found, &::freeaddrinfo);
  Attempt attempt;
  for (const addrinfo* one = list.get(); one; one = one->ai_next) {
    attempt.reason = try_address(*one);
    if (attempt.reason.empty()) return {.is_connected = true};
  }
  return attempt;
}

/// When to speak: after 5, 10, 20, 40 seconds, then every minute.
double next_progress_s(double waited_s) { return waited_s < 40 ? std::max(5.0, waited_s * 2) : waited_s + 60; }

[[noreturn]] void give_up(const StoreAddress& address, const Attempt& last, double waited_s) {
  if (last.is_name_unknown)
    throw UserError({"the host of rank 0, " + address.host, "its name is not known here (" + last.reason + ")",
                     "set MASTER_ADDR (--master-addr) to a name or address that every host can resolve"});
  throw UserError({"rank 0 at " + address.text(), format("does not answer after %.0f s (%s)", waited_s, last.reason.c_str()),
                   "start rank 0, and check that MASTER_ADDR and MASTER_PORT name its host and a port that firewalls let through"});
}

}  // namespace

void await_store(const StoreAddress& address, const ReachOptions& options) {
  const auto start = Clock::now();
  auto pause = milliseconds(10);
  for (double speak_s = next_progress_s(0);;) {
    const Attempt attempt = try_once(address);
    if (attempt.is_connected) return;
    const auto waited = Clock::now() - start;
    const double waited_s = std::chrono::duration<double>(waited).count();
    if (waited >= (attempt.is_name_unknown ? std::min(options.timeout, options.name_timeout) : options.timeout)) give_up(address, attempt, waited_s);
    if (options.progress && waited_s >= speak_s) {
      options.progress(waited_s, attempt.reason);
      speak_s = next_progress_s(waited_s);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(500));
  }
}

}  // namespace megatron
