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
#include <fstream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/published_weights.h"
#include "megatron/cli/chaos_process.h"
#include "megatron/cli/signal_queue.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPause{1'500};       ///< of FaultKind::pause
constexpr milliseconds kSlowTime{1'000};    ///< of FaultKind::slow
constexpr milliseconds kSlowPeriod{100};    ///< half of which the rank stands still
constexpr milliseconds kFullDisk{20'000};   ///< of FaultKind::full_disk, at most
constexpr int kStepsOverLink = 3;           ///< after which a broken link has harmed nothing
constexpr std::int64_t kPatienceSteps = 5;  ///< during which a rank may get what is to be broken
constexpr rlim_t kFullDiskBytes = 1;        ///< limit of a file's size meanwhile

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Returns the text between `begin` and the next " |" of a line; "" if there is none.
std::string field_of(const std::string& line, const std::string& begin) {
  const std::size_t at = line.find(begin);
  if (at == std::string::npos) return "";
  const std::size_t from = line.find_first_not_of(' ', at + begin.size()),
                    end = line.find(" |", at);
  return from < end && end != std::string::npos ? line.substr(from, end - from) : "";
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
    MEGATRON_CHECK(pid_ >= 0, "cannot fork");
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
  /// Returns the process ids of the ranks, in order of rank.
  std::vector<pid_t> ranks() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children");
    std::vector<pid_t> ranks;
    for (pid_t rank; file >> rank;) ranks.push_back(rank);
    return ranks;
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
        log_(options.log, std::ios::binary) {
    for (const Fault& fault : options.faults) outcome_.faults.push_back({.fault = fault});
  }

  ChaosOutcome run() {
    bool is_open = true;
    while (is_open) {
      pollfd event{child_.output(), POLLIN, 0};
      if (::poll(&event, 1, 10) > 0) is_open = read_some();
      advance();
      if (const auto signal = stop_signal()) {
        child_.kill_all();
        child_.wait();
        throw ChaosInterrupted{*signal, options_.log};
      }
      if (Clock::now() - last_step_ > std::chrono::duration<double>(options_.timeout_s)) {
        outcome_.hung = true;
        child_.kill_all();
        break;
      }
    }
    outcome_.code = child_.wait();
    outcome_.seconds = seconds_between(begin_, Clock::now());
    // After a fault during the last step, no step follows.
    if (outcome_.code == 0 && is_recovering())
      outcome_.faults[next_ - 1].recovery_s = seconds_between(happened_, Clock::now());
    return std::move(outcome_);
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
      take(partial_.substr(from, end - from));
    partial_.erase(0, from);
    return true;
  }

  void take(const std::string& line) {
    if (line.starts_with("megatron launch: restart ")) has_restarted_ = true;
    if (line.starts_with("WARNING: saving iteration ")) has_failed_to_save_ = true;
    auto step = logged_step(line);
    if (!step) return;
    step->may_be_wrong = weights_are_wrong();
    const auto before = std::exchange(last_step_, Clock::now());
    // A restart is no part of a step: the next fault would wait for its share of it.
    if (!is_recovering()) step_s_ = seconds_between(before, last_step_);
    const bool is_repeated = outcome_.steps.contains(step->iteration);
    outcome_.steps[step->iteration].push_back(*step);
    furthest_ = std::max(furthest_, step->iteration);
    if (options_.progress) options_.progress(furthest_);
    if (next_ == 0) return;
    FaultOutcome& last = outcome_.faults[next_ - 1];
    if (is_repeated) ++last.repeated_steps;
    if (!last.has_happened || last.recovery_s || is_active_) return;
    if (ends_the_ranks(last.fault.kind) && !has_restarted_) return;  // a step before the restart
    if (breaks_a_link(last.fault.kind) && !has_restarted_ && ++steps_since_ < kStepsOverLink)
      return;
    last.recovery_s = seconds_between(happened_, last_step_);
  }

  /// Makes the next fault happen when it is due, and ends the one that lasts.
  void advance() {
    if (is_active_) return continue_fault();
    if (next_ == outcome_.faults.size()) return;
    if (is_recovering()) return;
    const Fault& fault = outcome_.faults[next_].fault;
    if (furthest_ < fault.iteration) return;
    if (!due_) {
      const auto delay = std::chrono::duration<double>(fault.step_part * step_s_);
      due_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(delay);
    }
    if (Clock::now() >= *due_) begin_fault(outcome_.faults[next_]);
  }

  /// Returns whether no step has been finished since the last fault.
  bool is_recovering() const {
    return next_ > 0 && outcome_.faults[next_ - 1].has_happened &&
           !outcome_.faults[next_ - 1].recovery_s;
  }

  /// Returns whether the weights have a flipped bit.
  bool weights_are_wrong() const {
    return is_recovering() && !has_restarted_ &&
           outcome_.faults[next_ - 1].fault.kind == FaultKind::bit_flip;
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

  void begin_fault(FaultOutcome& outcome) {
    const std::vector<pid_t> ranks = child_.ranks();
    const auto rank = static_cast<std::size_t>(outcome.fault.rank);
    if (rank >= ranks.size()) return;  // the ranks are being started
    if (!break_inside(outcome.fault, ranks, ranks[rank])) {
      const bool is_hopeless = furthest_ - outcome.fault.iteration > kPatienceSteps;
      if (is_hopeless) ++next_, due_.reset();
      return;
    }
    ++next_;
    steps_since_ = 0;
    due_.reset();
    outcome.has_happened = true;
    happened_ = Clock::now();
    has_restarted_ = has_failed_to_save_ = false;
    victims_ = {ranks[rank]};
    switch (outcome.fault.kind) {
      case FaultKind::kill:
        return signal(SIGKILL);
      case FaultKind::segfault:
        return signal(SIGSEGV);
      case FaultKind::stop:
        return signal(SIGSTOP);
      case FaultKind::pause:
      case FaultKind::slow:
        is_active_ = true;
        return signal(SIGSTOP);
      case FaultKind::full_disk:
        is_active_ = true;
        victims_ = ranks;
        return limit_files(kFullDiskBytes);
      case FaultKind::drop_link:
      case FaultKind::corrupt_link:
      case FaultKind::bit_flip:
        return;
    }
  }

  void continue_fault() {
    const auto elapsed = Clock::now() - happened_;
    switch (outcome_.faults[next_ - 1].fault.kind) {
      case FaultKind::pause:
        if (elapsed >= kPause) end_fault();
        return;
      case FaultKind::slow:
        if (elapsed >= kSlowTime) return end_fault();
        return signal(elapsed % kSlowPeriod < kSlowPeriod / 2 ? SIGSTOP : SIGCONT);
      default:
        if (has_failed_to_save_ || elapsed >= kFullDisk) end_fault();
    }
  }

  void end_fault() {
    is_active_ = false;
    outcome_.faults[next_ - 1].fault.kind == FaultKind::full_disk ? limit_files(RLIM_INFINITY)
                                                                  : signal(SIGCONT);
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
  ChaosOutcome outcome_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_step_ = begin_, happened_ = begin_;
  std::int64_t furthest_ = 0;  ///< step
  double step_s_ = 0;          ///< time of the last step that no fault made longer
  std::size_t next_ = 0;       ///< fault
  std::optional<Clock::time_point> due_;
  int steps_since_ = 0;                                      ///< the last fault
  bool is_active_ = false;                                   ///< the last fault lasts
  bool has_restarted_ = false, has_failed_to_save_ = false;  ///< since the last fault
  std::vector<pid_t> victims_;
};

}  // namespace

std::optional<LoggedStep> logged_step(const std::string& line) {
  const std::size_t at = line.find("] iteration ");
  if (at == std::string::npos || line.find('/', at) == std::string::npos) return std::nullopt;
  LoggedStep step;
  const std::string number = line.substr(at + 12, line.find('/', at) - at - 12);
  if (number.find_first_not_of(" 0123456789") != std::string::npos) return std::nullopt;
  step.iteration = std::atoll(number.c_str());
  step.loss = field_of(line, "lm loss: ");
  step.grad_norm = field_of(line, "grad norm: ");
  return step.iteration > 0 ? std::optional(step) : std::nullopt;
}

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
