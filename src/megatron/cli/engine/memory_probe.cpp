#include "megatron/cli/engine/memory_probe.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

/// A folder that is removed with all files in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "megatron-plan-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw UserError({"a temporary folder", std::string("cannot be made: ") + std::strerror(errno),
                       "set TMPDIR to a folder with space"});
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// What the allocators of a run keep besides what is in use: the median of the runs of
/// bench/memory, which keep 0 to 10 MiB.
constexpr double kUsualSlack = 4.5 * (1 << 20);

/// Returns the tokens of a sample. The shorter the samples of mock data are, the longer is their
/// index, which the probe therefore has as well; the index of files is mapped. Two ranks of cp need
/// a multiple of 4.
std::string probe_length(const Settings& settings) {
  constexpr std::int64_t kLongest = 1024, kMultiple = 4;
  const std::int64_t own = (settings.training->seq_length + kMultiple - 1) / kMultiple * kMultiple;
  return std::to_string(settings.data->mock_data ? std::min(own, kLongest) : kLongest);
}

/// Adds the flags by which two ranks exchange what those of the run do, as far as two can: each
/// kind of exchange reads other parts of the program.
void add_exchange(std::vector<std::string>& words, const ParallelConfig& parallel) {
  if (parallel.tensor_model_parallel_size > 1) {
    words.insert(words.end(), {"--tensor-model-parallel-size", "2"});
    if (parallel.sequence_parallel) words.emplace_back("--sequence-parallel");
  } else if (parallel.context_parallel_size > 1) {
    words.insert(words.end(), {"--context-parallel-size", "2"});
  }
}

std::vector<std::string> probe_command(const Settings& settings, std::int64_t num_ranks,
                                       const fs::path& folder) {
  std::vector<std::string> words{"megatron"};
  // Ranks that a launcher has forked share pages of the libraries with it, and communicate.
  const char* count = num_ranks > 1 ? "2" : "1";
  const std::string length = probe_length(settings);
  if (num_ranks > 1) words.insert(words.end(), {"launch", "--nproc-per-node", count, "--"});
  for (const std::string& word : split_words(
           "pretrain gpt --num-layers 1 --hidden-size 64 --num-attention-heads 2 "
           "--micro-batch-size 1 --global-batch-size 2 --vocab-size 64 --tokenizer-type "
           "NullTokenizer --mock-data --lr 1e-3 --train-iters 2 --eval-iters 0 --log-memory "
           "--device cpu"))
    words.push_back(word);
  words.insert(words.end(),
               {"--seq-length", length, "--max-position-embeddings", length, "--tensorboard-dir",
                folder.string(), "--num-workers", std::to_string(settings.data->num_workers)});
  if (num_ranks > 1) add_exchange(words, *settings.parallel);
  if (settings.training->bf16) words.emplace_back("--bf16");
  if (settings.training->fp16) words.emplace_back("--fp16");
  return words;
}

/// Returns this process's environment without the variables that describe a rank or its threads.
std::vector<std::string> probe_environment(std::int64_t num_threads) {
  std::vector<std::string> variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (name != "OMP_NUM_THREADS" && name != "RANK" && name != "WORLD_SIZE" &&
        name != "LOCAL_RANK" && !name.starts_with("MEGATRON_") && !name.starts_with("SLURM_"))
      variables.emplace_back(text);
  }
  variables.push_back("OMP_NUM_THREADS=" + std::to_string(num_threads));
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Runs the program with its output in `log`. Returns its exit code.
int run_program(std::vector<std::string> words, std::vector<std::string> environment,
                const fs::path& log) {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, program.c_str(), &actions, nullptr,
                                    pointers_to(words).data(), pointers_to(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return -1;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns the last table in a file of metrics.
MemoryTable last_table(const std::string& metrics) {
  MemoryTable table;
  std::size_t begin = 0;
  while (begin < metrics.size()) {
    const std::size_t end = std::min(metrics.size(), metrics.find('\n', begin));
    const Json line = parse_json(metrics.substr(begin, end - begin), "metrics.jsonl of a probe");
    if (line.contains("memory_of_ranks")) table = memory_table_of(line["memory_of_ranks"].front());
    begin = end + 1;
  }
  return table;
}

}  // namespace

HostBaseline probe_memory(const Settings& settings, std::int64_t num_ranks) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  const std::int64_t num_threads = intra_op_threads({.index = 0, .count = num_ranks});
  const int code = run_program(probe_command(settings, num_ranks, folder.path()),
                               probe_environment(num_threads), log);
  if (code != 0)
    throw UserError({"`megatron pretrain` of a small model, which measures the program's memory,",
                     "ended with " + std::to_string(code) + ":\n" +
                         (fs::exists(log) ? read_file(log) : std::string()),
                     "make it run on this machine"});
  const MemoryTable table = last_table(read_file(folder.path() / "metrics.jsonl"));
  return {.libraries = table.libraries,
          .allocator_slack = table.allocator_slack,
          .usual_slack = kUsualSlack,
          .host = table.host - table.workspaces,
          .workspaces = table.workspaces,
          .num_threads = num_threads};
}

}  // namespace megatron
