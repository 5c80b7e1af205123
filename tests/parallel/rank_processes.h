// Runs ranks as processes. The test program starts itself once per rank, and each child runs a
// named body with communicators over a store of the parent.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "megatron/control/connect_to_store.h"
#include "megatron/control/store_service.h"
#include "megatron/parallel/process_communicators.h"

namespace megatron {

using RankBody = std::function<void(Communicators&)>;

inline std::map<std::string, RankBody>& rank_bodies() {
  static std::map<std::string, RankBody> bodies;
  return bodies;
}

/// Registers a body for parent and child. Define `const RankBodyOf kName{"name", body}` at
/// namespace scope.
struct RankBodyOf {
  RankBodyOf(const std::string& name, RankBody body) { rank_bodies()[name] = std::move(body); }
};

struct ProcessPlan {
  std::string body;
  std::vector<std::string> hosts;  ///< One per rank; their number is the world size.
  std::string transport = "auto";
  int timeout_ms = 20'000;
  std::string hang_reports = {};  ///< folder
  bool watches_store = true;      ///< else it is polled, as stores of others are
};

struct ProcessEnd {
  int code = -1;     ///< Exit code.
  int signal = 0;    ///< Signal that killed the process.
  std::string text;  ///< Text of the exception that ended it.
};

inline std::string child_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

inline CpuTransport transport_named(const std::string& name) {
  if (name == "gloo") return CpuTransport::gloo;
  return name == "shared-memory" ? CpuTransport::shared_memory : CpuTransport::automatic;
}

/// Runs the body of a child and writes its failure to where the parent reads it.
inline int run_child() {
  try {
    const RunStore::Connect connect =
        [port = std::stoi(child_variable("MEGATRON_TEST_PORT"))](std::chrono::milliseconds limit) {
          return connect_to_store({"127.0.0.1", port}, {.timeout = limit});
        };
    const RunStore store(connect(StoreConnectOptions{}.timeout),
                         child_variable("MEGATRON_TEST_WATCHES").empty() ? nullptr : connect);
    const auto communicators = make_process_communicators(
        store,
        {.rank = std::stoll(child_variable("MEGATRON_TEST_RANK")),
         .world_size = std::stoll(child_variable("MEGATRON_TEST_WORLD")),
         .host = child_variable("MEGATRON_TEST_HOST"),
         .address = "127.0.0.1",
         .timeout = std::chrono::milliseconds(std::stoi(child_variable("MEGATRON_TEST_TIMEOUT"))),
         .cpu_transport = transport_named(child_variable("MEGATRON_TEST_TRANSPORT")),
         .start = "test",
         .hang_reports = {.folder = child_variable("MEGATRON_TEST_HANG_REPORTS")}});
    try {
      rank_bodies().at(child_variable("MEGATRON_TEST_BODY"))(*communicators);
    } catch (const std::exception& error) {
      communicators->abort("rank " + std::to_string(communicators->rank()) +
                           " failed: " + error.what());
      throw;
    }
    return testing::Test::HasFailure() ? 3 : 0;
  } catch (const std::exception& error) {
    std::ofstream(child_variable("MEGATRON_TEST_OUTPUT")) << error.what();
    return 1;
  }
}

class RankProcesses {
 public:
  explicit RankProcesses(const ProcessPlan& plan)
      : plan_(plan), folder_(testing::TempDir() + "rank_processes." + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    ListeningSocket socket({.port = 0, .loopback_only = true});
    port_ = socket.port();
    store_ = std::make_unique<StoreServer>(std::move(socket));
    for (std::size_t rank = 0; rank < plan.hosts.size(); ++rank) processes_.push_back(start(rank));
  }
  ~RankProcesses() {
    for (const pid_t process : processes_) {
      if (process > 0) ::kill(process, SIGKILL), ::waitpid(process, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }
  pid_t process(std::size_t rank) const { return processes_[rank]; }

  /// Waits for all processes and kills those that still run after `timeout`.
  std::vector<ProcessEnd> ends(std::chrono::seconds timeout = std::chrono::seconds(150)) {
    std::vector<ProcessEnd> ends(processes_.size());
    const auto limit = std::chrono::steady_clock::now() + timeout;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      while (::waitpid(processes_[rank], &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > limit) ::kill(processes_[rank], SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      processes_[rank] = 0;
      ends[rank].code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      ends[rank].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      std::stringstream text;
      text << std::ifstream(output_of(rank)).rdbuf();
      ends[rank].text = text.str();
    }
    return ends;
  }

 private:
  std::string output_of(std::size_t rank) const { return folder_ + "/" + std::to_string(rank); }

  pid_t start(std::size_t rank) {
    std::vector<std::string> words;
    for (char** word = environ; *word != nullptr; ++word) {
      const std::string variable = *word;
      if (!variable.starts_with("GTEST_")) words.push_back(variable);  // a shard, an output
    }
    const std::map<std::string, std::string> own{{"BODY", plan_.body},
                                                 {"RANK", std::to_string(rank)},
                                                 {"WORLD", std::to_string(plan_.hosts.size())},
                                                 {"HOST", plan_.hosts[rank]},
                                                 {"PORT", std::to_string(port_)},
                                                 {"TIMEOUT", std::to_string(plan_.timeout_ms)},
                                                 {"TRANSPORT", plan_.transport},
                                                 {"HANG_REPORTS", plan_.hang_reports},
                                                 {"WATCHES", plan_.watches_store ? "1" : ""},
                                                 {"OUTPUT", output_of(rank)}};
    for (const auto& [name, value] : own) words.push_back("MEGATRON_TEST_" + name + "=" + value);
    std::vector<char*> environment;
    for (std::string& word : words) environment.push_back(word.data());
    environment.push_back(nullptr);
    std::vector<std::string> arguments{"/proc/self/exe", "--gtest_filter=RankProcess.DISABLED_Body",
                                       "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t process = 0;
    EXPECT_EQ(::posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, argv.data(),
                            environment.data()),
              0);
    return process;
  }

  ProcessPlan plan_;
  std::string folder_;
  std::int64_t port_ = 0;
  std::unique_ptr<StoreServer> store_;
  std::vector<pid_t> processes_;
};

}  // namespace megatron
