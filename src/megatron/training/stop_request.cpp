#include "megatron/training/stop_request.h"

#include <array>
#include <atomic>
#include <csignal>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT};

/// Signals belong to the process, so what a handler may touch does too: 0 = none yet.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::array<struct sigaction, kSignals.size()> earlier_actions;

void remember_signal(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    MEGATRON_CHECK(sigaction(kSignals[i], &action, &earlier_actions[i]) == 0, "signal ", kSignals[i]);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &earlier_actions[i], nullptr);
}

std::optional<int> StopSignals::received() const {
  const int signal = first_signal;
  if (signal == 0) return std::nullopt;
  return signal;
}

std::string signal_name(int signal) { return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "signal " + std::to_string(signal); }

}  // namespace megatron
