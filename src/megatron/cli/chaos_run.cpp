#include "megatron/cli/chaos_run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/cli/chaos_process.h"
#include "megatron/cli/published_weights.h"
#include "megatron/cli/signal_queue.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;
using std::chrono::milliseconds;

constexpr milliseconds kPause{1'500};      ///< of FaultKind::pause
constexpr milliseconds kSlowTime{1'000};   ///< of FaultKind::slow
constexpr milliseconds kSlowPeriod{100};   ///< half of which the rank is stopped
constexpr milliseconds kFullDisk{20'000};  ///< of FaultKind::full_disk, at most
constexpr rlim_t kFullDiskBytes = 1;       ///< limit of a file's size meanwhile

/// Returns whether the fault is ended by this program.
bool lasts(FaultKind kind) {
  return kind == FaultKind::pause || kind == FaultKind::slow || kind == FaultKind::full_disk;
}

/// The launcher as a child process in a group of its own. The destructor kills the group.
class ChildProgram {
 public:
  /// `signal_mask` is that of the child. `published_weights` is a folder or "".
  ChildProgram(const std::vector<std::string>& words, const sigset_t& signal_mask,
               const std::string& published_weights = "") {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_file_error("make", "a pipe", errno);
    std::vector<std::string> all = words;
    all.insert(all.begin(), "megatron");
    std::vector<char*> pointers;
    for (std::string& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    MEGATRON_CHECK(pid_ >= 0, "fork: ", std::strerror(errno));
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // which the launcher passes on to its ranks
      ::sigprocmask(SIG_SETMASK, &signal_mask, nullptr);
      if (::getppid() != parent) ::_exit(1);
      if (!published_weights.empty())
        ::setenv(kPublishedWeightsVariable, published_weights.c_str(), 1);
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execv("/proc/self/exe", pointers.data());
      ::_exit(127);
    }
    ::setpgid(pid_, pid_);
    ::close(ends[1]);
    output_ = ends[0];
  }
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;
  ~ChildProgram() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
  }

  pid_t pid() const { return pid_; }
  int output() const { return output_; }
  void kill_all() const { ::kill(-pid_, SIGKILL); }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// Returns the process ids of the ranks, in order of creation.
  std::vector<pid_t> children() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children");
    std::vector<pid_t> children;
    for (pid_t child; file >> child;) children.push_back(child);
    return children;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

class ChaosRun {
 public:
  explicit ChaosRun(const ChaosRunOptions& options)
      : options_(options),
        child_(options.command, signals_.saved_mask(), options.published_weights.string()),
        log_(options.log, std::ios::binary),
        ranks_(static_cast<std::size_t>(options.num_ranks)),
        watch_(options.faults, Clock::now()) {}

  ChaosOutcome run() {
    bool is_open = true, has_hung = false;
    while (is_open && !has_hung) {
      pollfd event{child_.output(), POLLIN, 0};
      if (::poll(&event, 1, 10) > 0) is_open = read_some();
      ranks_.update(child_.children());
      advance();
      if (const auto signal = stop_signal()) {
        child_.kill_all();
        child_.wait();
        throw ChaosInterrupted{*signal, options_.log};
      }
      has_hung = Clock::now() - watch_.last_step() > duration<double>(options_.timeout_s);
    }
    if (has_hung) child_.kill_all();
    const int code = child_.wait();
    ChaosOutcome outcome = watch_.finish(code, Clock::now());
    outcome.hung = has_hung;
    return outcome;
  }

 private:
  /// Returns a signal that asks this program to end.
  std::optional<int> stop_signal() {
    while (const auto signal = signals_.take())
      if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP || *signal == SIGQUIT)
        return signal;
    return std::nullopt;
  }

  /// Returns false at the end of the output.
  bool read_some() {
    std::array<char, 65536> buffer;
    const ssize_t count = ::read(child_.output(), buffer.data(), buffer.size());
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    if (count == 0) return false;
    log_.write(buffer.data(), count).flush();
    partial_.append(buffer.data(), static_cast<std::size_t>(count));
    std::size_t from = 0;
    for (std::size_t end; (end = partial_.find('\n', from)) != std::string::npos; from = end + 1)
      if (watch_.take(partial_.substr(from, end - from), Clock::now()) && options_.progress)
        options_.progress(watch_.furthest_step());
    partial_.erase(0, from);
    return true;
  }

  /// Makes the next fault happen when it is due, and ends the one that lasts.
  void advance() {
    if (watch_.is_active()) return continue_fault();
    if (const Fault* fault = watch_.due_fault(Clock::now())) begin_fault(*fault);
  }

  /// Changes the inside of a rank. Returns false if there is nothing to change, or not yet because
  /// the ranks are being started; true for other kinds.
  bool break_inside(const Fault& fault, std::vector<pid_t> processes, pid_t victim) const {
    processes.push_back(child_.pid());
    switch (fault.kind) {
      case FaultKind::drop_link:
        return drop_link(victim, processes, fault.choice);
      case FaultKind::corrupt_link:
        return corrupt_link(victim, processes, fault.choice);
      case FaultKind::bit_flip:
        return flip_bit(victim, options_.published_weights, fault.choice);
      default:
        return true;
    }
  }

  void begin_fault(const Fault& fault) {
    const std::vector<pid_t> ranks = ranks_.by_rank();
    if (ranks.empty()) return;  // the ranks are being started
    const pid_t victim = ranks[static_cast<std::size_t>(fault.rank)];
    if (!break_inside(fault, ranks, victim)) return watch_.postpone_fault();
    watch_.begin_fault(Clock::now(), lasts(fault.kind));
    victims_ = {victim};
    switch (fault.kind) {
      case FaultKind::kill:
        return signal(SIGKILL);
      case FaultKind::segfault:
        return signal(SIGSEGV);
      case FaultKind::stop:
      case FaultKind::pause:
      case FaultKind::slow:
        return signal(SIGSTOP);
      case FaultKind::full_disk:
        victims_ = ranks;
        return limit_files(kFullDiskBytes);
      case FaultKind::drop_link:
      case FaultKind::corrupt_link:
      case FaultKind::bit_flip:
        return;
    }
  }

  void continue_fault() {
    const auto elapsed = Clock::now() - watch_.happened();
    switch (watch_.last_fault().kind) {
      case FaultKind::pause:
        if (elapsed >= kPause) end_fault();
        return;
      case FaultKind::slow:
        if (elapsed >= kSlowTime) return end_fault();
        return signal(elapsed % kSlowPeriod < kSlowPeriod / 2 ? SIGSTOP : SIGCONT);
      default:
        if (watch_.has_failed_to_save() || watch_.has_restarted() || elapsed >= kFullDisk)
          end_fault();
    }
  }

  void end_fault() {
    watch_.end_fault();
    watch_.last_fault().kind == FaultKind::full_disk ? limit_files(RLIM_INFINITY) : signal(SIGCONT);
  }

  void signal(int number) const {
    for (const pid_t victim : victims_) ::kill(victim, number);
  }

  /// The soft limit alone, which may be raised again.
  void limit_files(rlim_t bytes) const {
    for (const pid_t victim : victims_) {
      rlimit limit{};
      if (::prlimit(victim, RLIMIT_FSIZE, nullptr, &limit) != 0) continue;
      limit.rlim_cur = std::min(bytes, limit.rlim_max);
      ::prlimit(victim, RLIMIT_FSIZE, &limit, nullptr);
    }
  }

  const ChaosRunOptions& options_;
  SignalQueue signals_;
  ChildProgram child_;
  std::ofstream log_;
  std::string partial_;  ///< the beginning of a line
  RankProcesses ranks_;
  ChaosWatch watch_;
  std::vector<pid_t> victims_;
};

}  // namespace

ProgramOutput output_of_program(const std::vector<std::string>& words) {
  sigset_t mask;
  ::sigprocmask(SIG_SETMASK, nullptr, &mask);
  ChildProgram child(words, mask);
  ProgramOutput output;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(child.output(), buffer.data(), buffer.size())) != 0;) {
    if (count < 0 && errno != EINTR) break;
    if (count > 0) output.text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  output.code = child.wait();
  return output;
}

ChaosOutcome run_with_faults(const ChaosRunOptions& options) { return ChaosRun(options).run(); }

}  // namespace megatron
