// A `megatron launch …` in the background, whose ranks a test may kill.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {

using std::chrono::milliseconds;
using Args = std::vector<std::string>;

inline const std::string kProgram = std::string(MEGATRON_BINARY_DIR) + "/bin/megatron";

inline Args joined(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Splits a text at its spaces.
inline Args words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Runs `megatron launch …` in the background, in a separate session and in `folder`. Its stderr
/// joins its stdout in output(), unless `err` is the file descriptor for it.
class RunningLaunch {
 public:
  explicit RunningLaunch(const Args& words, const fs::path& folder = fs::current_path(),
                         int err = -1) {
    Args all = joined({"megatron", "launch"}, words);
    std::vector<char*> pointers;
    for (std::string& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setsid();
    if (::chdir(folder.c_str()) != 0) ::_exit(127);
    const int out = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err < 0 ? out : err, STDERR_FILENO);
    ::close(out);
    ::execv(kProgram.c_str(), pointers.data());
    ::_exit(127);
  }
  ~RunningLaunch() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  std::string output() const { return fs::exists(log_) ? read_file(log_) : ""; }

  /// Returns the process ids of the ranks, in order of rank.
  std::vector<pid_t> ranks() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children");
    std::vector<pid_t> pids;
    for (pid_t pid; file >> pid;) pids.push_back(pid);
    return pids;
  }

  /// Returns how often the text was printed so far.
  int count(const std::string& text) const {
    int found = 0;
    const std::string all = output();
    for (std::size_t at = 0; (at = all.find(text, at)) != std::string::npos; at += text.size())
      ++found;
    return found;
  }

  bool wait_for(const std::string& text, int times = 1) const {
    return becomes_true([&] { return count(text) >= times; });
  }

  /// Returns the exit code, 128 + signal if it was killed, or −1 if it does not end.
  int wait() const {
    int status = 0;
    if (!becomes_true([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  static bool becomes_true(const std::function<bool()>& condition,
                           milliseconds limit = milliseconds(100'000)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  }

 private:
  pid_t pid_ = -1;
  const TemporaryFolder folder_;
  const fs::path log_ = folder_ / "log";
};

inline bool are_gone(const std::vector<pid_t>& pids) {
  return RunningLaunch::becomes_true([&] {
    for (const pid_t pid : pids) {
      if (::kill(pid, 0) == 0) return false;
    }
    return true;
  });
}

}  // namespace megatron
