#include "megatron/cli/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Signals from a user or a scheduler, which are forwarded to the ranks.
constexpr std::array kForwarded{SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};

}  // namespace

SignalQueue::SignalQueue() {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  for (const int signal : kForwarded) ::sigaddset(&mask, signal);
  ::sigprocmask(SIG_BLOCK, &mask, &saved_mask_);
  std::signal(SIGUSR2, SIG_DFL);  // a signal that is ignored never arrives
  descriptor_ = ::signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
  MEGATRON_CHECK(descriptor_ >= 0, "signalfd: ", std::strerror(errno));
}

SignalQueue::~SignalQueue() {
  ::close(descriptor_);
  std::signal(SIGUSR2, SIG_IGN);  // it ends nothing, now as before
  ::sigprocmask(SIG_SETMASK, &saved_mask_, nullptr);
}

std::optional<int> SignalQueue::take() {
  signalfd_siginfo info{};
  if (::read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace megatron
