// The memory of whole runs of the program, each in a fresh process: that --log-memory explains the
// peak, that `plan --memory` and a budget predict it, and that a remedy named after an
// out-of-memory helps.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "cli/running_launch.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

constexpr double kTolerance = 0.03;  ///< what the documentation promises, of the measured peak

struct Outcome {
  int code = -1;
  std::string output, errors;
  double address_space = 0;  ///< VmPeak in bytes
};

/// Returns the highest virtual size of a process so far.
double virtual_peak(pid_t process) {
  std::istringstream status(read_file("/proc/" + std::to_string(process) + "/status"));
  std::string word;
  double kilobytes = 0;
  while (status >> word)
    if (word == "VmPeak:" && status >> kilobytes) return kilobytes * 1024;
  return 0;
}

/// Runs the program on one thread with this limit on its address space.
Outcome run(Args words, rlim_t limit = RLIM_INFINITY) {
  TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string(), err = (folder.path() / "err").string();
  words.insert(words.begin(), "megatron");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit bound{limit, limit};
    ::setrlimit(RLIMIT_AS, &bound);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    ::execv(kProgram.c_str(), pointers.data());
    ::_exit(127);
  }
  Outcome outcome;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    outcome.address_space = std::max(outcome.address_space, virtual_peak(child));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.output = read_file(out);
  outcome.errors = read_file(err);
  return outcome;
}

/// A model whose tensors take as much memory as the program does.
Args model(const Args& more) {
  return joined({"--num-layers", "4", "--hidden-size", "256", "--num-attention-heads", "4",
                 "--seq-length", "512", "--vocab-size", "4096", "--micro-batch-size", "2"},
                more);
}

/// Activations of a wide batch are most of this model's memory.
Args wide_batch(const Args& more) {
  return joined({"--num-layers", "6", "--hidden-size", "128", "--num-attention-heads", "2",
                 "--seq-length", "256", "--vocab-size", "512", "--micro-batch-size", "32"},
                more);
}

Args training(const Args& more) {
  return joined(
      {"pretrain", "gpt", "--tokenizer-type", "NullTokenizer", "--mock-data", "--train-iters", "2",
       "--lr", "1e-3", "--eval-iters", "0", "--log-interval", "1", "--device", "cpu"},
      more);
}

/// Returns the tables of all ranks after the second step of a run that logged into the folder.
Json logged_tables(const TemporaryFolder& folder) {
  std::istringstream lines(read_file(folder.path() / "metrics.jsonl"));
  Json tables;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json.contains("memory_of_ranks")) tables = json["memory_of_ranks"];
  }
  return tables;
}

Json measured_tables(std::int64_t ranks, const Args& flags) {
  TemporaryFolder folder;
  Args words =
      training(joined(flags, {"--log-memory", "--tensorboard-dir", folder.path().string()}));
  if (ranks > 1) words = joined({"launch", "--nproc-per-node", std::to_string(ranks), "--"}, words);
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  return logged_tables(folder);
}

struct MemoryRun {
  const char* name;
  std::int64_t ranks;
  Args flags;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name.
void PrintTo(const MemoryRun& run, std::ostream* out) { *out << run.name; }

class MemoryOfRuns : public testing::TestWithParam<MemoryRun> {};

TEST_P(MemoryOfRuns, IsExplainedAndPredicted) {
  const auto& [name, ranks, flags] = GetParam();
  const Json measured = measured_tables(ranks, flags);
  ASSERT_EQ(measured.size(), ranks);
  for (const Json& rank : measured)
    EXPECT_LE(std::abs(rank["unexplained"].get<double>()), kTolerance * rank["peak"].get<double>())
        << rank.dump(1);
  const Outcome plan = run(joined(
      {"plan", "--memory", "--json", "--mock-data", "--world-size", std::to_string(ranks)}, flags));
  ASSERT_EQ(plan.code, 0) << plan.errors;
  for (const Json& planned : Json::parse(plan.output)["ranks"]) {
    const Json& rank = measured[planned["rank"].get<std::size_t>()];
    const Json& predicted = planned["memory_bytes"];
    EXPECT_NEAR(predicted["peak"].get<double>() / rank["peak"].get<double>(), 1, kTolerance)
        << rank.dump(1) << predicted.dump(1);
    // Weights and optimizer follow from the declared parameters, so they are exact.
    for (const char* part : {"parameters", "main_parameters", "gradients", "optimizer_state"})
      EXPECT_EQ(predicted[part], rank[part]) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MemoryOfRuns,
    testing::Values(
        MemoryRun{"Gpt", 1, model({})},
        MemoryRun{"LlamaInBf16", 1,
                  model({"--bf16", "--swiglu", "--normalization", "RMSNorm",
                         "--position-embedding-type", "rope", "--disable-bias-linear",
                         "--group-query-attention", "--num-query-groups", "2"})},
        MemoryRun{"Experts", 1,
                  model({"--bf16", "--num-experts", "4", "--moe-ffn-hidden-size", "256",
                         "--moe-token-dispatcher-type", "alltoall"})},
        MemoryRun{"RecomputedMlps", 1, wide_batch({"--activation-plan", "mlp*5,none"})},
        MemoryRun{"DistributedOptimizer", 2,
                  model({"--bf16", "--use-distributed-optimizer", "--global-batch-size", "8"})},
        MemoryRun{"TensorAndSequenceParallel", 2,
                  model({"--bf16", "--tensor-model-parallel-size", "2", "--sequence-parallel"})},
        // The length of a sample is no multiple of what two ranks would need.
        MemoryRun{"ThreeRanksOfContext", 3,
                  model({"--seq-length", "510", "--context-parallel-size", "3"})},
        MemoryRun{"Pipeline", 2,
                  model({"--pipeline-model-parallel-size", "2", "--global-batch-size", "8"})}),
    [](const auto& info) { return std::string(info.param.name); });

// The budget lies between what the run needs with all activations and with all layers recomputed.
TEST(MemoryBudget, HasThePeakThatItPredicts) {
  TemporaryFolder folder;
  constexpr double kMebi = 1 << 20, kBudget = 460;
  const Outcome outcome =
      run(training(wide_batch({"--memory-budget", std::to_string(static_cast<int>(kBudget)) + "MiB",
                               "--log-memory", "--tensorboard-dir", folder.path().string()})));
  ASSERT_EQ(outcome.code, 0) << outcome.errors;
  std::smatch chosen;
  ASSERT_TRUE(std::regex_search(outcome.output, chosen,
                                std::regex("chosen: ([^ ]+): predicted peak ([0-9.]+) MiB")))
      << outcome.output;
  EXPECT_NE(chosen[1], "none*6") << "all activations fit into the budget";
  EXPECT_NE(chosen[1], "full*6") << "no activations fit into the budget";
  const double peak = logged_tables(folder).at(0)["peak"].get<double>() / kMebi;
  EXPECT_NEAR(peak / std::stod(chosen[2]), 1, kTolerance) << outcome.output;
  EXPECT_LE(peak, kBudget * (1 + kTolerance)) << outcome.output;
}

// The limit counts addresses that are never used. The plan must leave room for them.
TEST(MemoryBudget, CountsWhatUlimitsCount) {
  constexpr rlim_t kUnreached = rlim_t{1} << 42;
  const Args flags = training(wide_batch({}));
  const Outcome whole = run(flags, kUnreached);
  ASSERT_EQ(whole.code, 0) << whole.errors;
  const auto limit = static_cast<rlim_t>(whole.address_space) - (rlim_t{16} << 20);
  const Outcome planned = run(joined(flags, {"--memory-budget", "100GB"}), limit);
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_NE(planned.output.find("which is what ulimit -v or -d leaves"), std::string::npos)
      << planned.output;
}

/// Returns the words of the first remedy in a message of out-of-memory.
Args first_remedy(const std::string& message) {
  const auto fix = message.find("\n    --");
  if (fix == std::string::npos) return {};
  std::istringstream line(message.substr(fix + 5, message.find(": ", fix) - fix - 5));
  Args words;
  for (std::string word; line >> word;) words.push_back(word);
  return words;
}

std::size_t num_remedies(const std::string& message) {
  std::size_t count = 0;
  for (auto at = message.find("\n    --"); at != std::string::npos;
       at = message.find("\n    --", at + 1))
    ++count;
  return count;
}

// The limit lies between what the run and the same run with half the microbatch need, so that the
// cheapest remedy suffices.
TEST(OutOfMemory, NamesARemedyWithWhichTheRunFits) {
  const Args flags = training({"--num-layers", "4", "--hidden-size", "128", "--num-attention-heads",
                               "2", "--seq-length", "1024", "--vocab-size", "512", "--num-workers",
                               "0", "--global-batch-size", "8"});
  // With a limit, however high, no address space is reserved in advance.
  constexpr rlim_t kUnreached = rlim_t{1} << 42;
  const Outcome whole = run(joined(flags, {"--micro-batch-size", "8"}), kUnreached),
                half = run(joined(flags, {"--micro-batch-size", "4"}), kUnreached);
  ASSERT_EQ(whole.code, 0) << whole.errors;
  ASSERT_GT(whole.address_space - half.address_space, 64 << 20);
  const auto limit = static_cast<rlim_t>((whole.address_space + half.address_space) / 2);

  const Outcome failed = run(joined(flags, {"--micro-batch-size", "8"}), limit);
  EXPECT_EQ(failed.code, 2);
  EXPECT_NE(failed.errors.find("error: out of memory: "), std::string::npos) << failed.errors;
  EXPECT_NE(failed.errors.find("this rank holds: weights "), std::string::npos) << failed.errors;
  EXPECT_EQ(num_remedies(failed.errors), 3) << failed.errors;
  const Args remedy = first_remedy(failed.errors);
  ASSERT_FALSE(remedy.empty()) << failed.errors;
  const Outcome fits = run(joined(joined(flags, {"--micro-batch-size", "8"}), remedy), limit);
  EXPECT_EQ(fits.code, 0) << remedy.front() << '\n' << fits.errors;
}

}  // namespace
}  // namespace megatron
