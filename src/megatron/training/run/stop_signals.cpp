#include "megatron/training/run/stop_signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 8> kNames{{{"SIGTERM", SIGTERM},
                                                                  {"SIGUSR1", SIGUSR1},
                                                                  {"SIGUSR2", SIGUSR2},
                                                                  {"SIGINT", SIGINT},
                                                                  {"SIGHUP", SIGHUP},
                                                                  {"SIGQUIT", SIGQUIT},
                                                                  {"SIGALRM", SIGALRM},
                                                                  {"SIGXCPU", SIGXCPU}}};

constexpr std::string_view kFirstMessage =
    "\nstop requested: the run finishes its iteration, saves if --save is given, and exits\n";
constexpr std::string_view kSecondMessage =
    "\nstop requested again: the run is already stopping; a third signal ends it at once, without "
    "a checkpoint\n";

/// State that the signal handler uses; it is global because signals are per process. First received
/// signal (0 = none), and the number of signals.
std::atomic<int> first_signal{0}, num_signals{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<bool> prints_messages{true};
/// Guards what follows: ranks that are threads of one process share the handler.
std::mutex mutex;
std::int64_t num_handlers = 0;
std::vector<std::pair<int, struct sigaction>> earlier_actions;

void write_stderr(std::string_view text) {
  if (!prints_messages) return;
  const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  (void)written;  // a signal handler cannot report errors
}

void handle_signal(int signal) {
  const int saved_errno = errno;
  const int count = ++num_signals;
  if (count == 1) {
    first_signal = signal;
    write_stderr(kFirstMessage);
  } else if (count == 2) {
    write_stderr(kSecondMessage);
  } else {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // delivered when this handler returns
  }
  errno = saved_errno;
}

int signal_number(const std::string& name) {
  const auto found = std::ranges::find(kNames, name, &std::pair<std::string_view, int>::first);
  MEGATRON_CHECK(found != kNames.end(), "unknown signal ", name);
  return found->second;
}

}  // namespace

StopSignalHandler::StopSignalHandler(const std::string& exit_signal, bool prints) {
  const std::lock_guard lock(mutex);
  if (num_handlers++ > 0) return;
  prints_messages = prints;
  first_signal = num_signals = 0;
  struct sigaction action {};
  action.sa_handler = handle_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  std::vector<int> signals{SIGTERM, SIGUSR1, SIGINT};
  if (std::ranges::count(signals, signal_number(exit_signal)) == 0)
    signals.push_back(signal_number(exit_signal));
  earlier_actions.clear();
  for (const int signal : signals) {
    struct sigaction earlier {};
    MEGATRON_CHECK(sigaction(signal, &action, &earlier) == 0, "sigaction failed for signal ",
                   signal);
    earlier_actions.emplace_back(signal, earlier);
  }
}

StopSignalHandler::~StopSignalHandler() {
  const std::lock_guard lock(mutex);
  if (--num_handlers > 0) return;
  for (const auto& [signal, earlier] : earlier_actions) sigaction(signal, &earlier, nullptr);
}

std::optional<int> StopSignalHandler::received() const {
  const int signal = first_signal;
  if (signal == 0) return std::nullopt;
  return signal;
}

std::string signal_name(int signal) {
  const auto found = std::ranges::find(kNames, signal, &std::pair<std::string_view, int>::second);
  return found == kNames.end() ? "signal " + std::to_string(signal) : std::string(found->first);
}

}  // namespace megatron
