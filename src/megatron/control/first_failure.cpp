#include "megatron/control/first_failure.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

namespace megatron {
namespace {

/// Orders ends of one kind that are seen at the same time by how likely they are the cause: a
/// killed rank, then a specific exit code, then exit code 1.
int severity(int status) {
  if (WIFSIGNALED(status)) return 3;
  return WEXITSTATUS(status) == 0 ? 0 : WEXITSTATUS(status) == 1 ? 1 : 2;
}

}  // namespace

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return "signal " + std::to_string(signal) + (name ? " (SIG" + std::string(name) + ")" : "");
}

std::string describe_end(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  return "was killed by " + signal_text(WTERMSIG(status));
}

bool is_code_of_stop(int code) {
  // After SIGUSR1 a rank exits as after SIGTERM. The others may be its --exit-signal.
  constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR2, SIGHUP, SIGQUIT, SIGALRM, SIGXCPU};
  return std::ranges::count(kSignals, code - 128) > 0;
}

FirstFailure::Kind FirstFailure::kind_of(const RankEnd& end) const {
  if (end.status == 0) return Kind::none;
  const bool is_requested = WIFSIGNALED(end.status) ? signals_.contains(WTERMSIG(end.status))
                                                    : is_code_of_stop(WEXITSTATUS(end.status));
  if (is_requested) return Kind::stopped_on_request;
  return end.cause.empty() ? Kind::own : Kind::consequence;
}

bool FirstFailure::record(std::vector<RankEnd> ends) {
  if (is_terminated_ && kind_ != Kind::none) return false;
  std::ranges::stable_sort(ends, [this](const RankEnd& one, const RankEnd& other) {
    return std::pair(kind_of(one), severity(one.status)) >
           std::pair(kind_of(other), severity(other.status));
  });
  if (ends.empty() || kind_of(ends.front()) <= kind_) return false;
  kind_ = kind_of(ends.front());
  end_ = std::move(ends.front());
  return true;
}

}  // namespace megatron
