// Implements `megatron chaos`: runs a command with and without faults and compares.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"
#include "megatron/base/progress_bar.h"
#include "megatron/cli/chaos_report.h"
#include "megatron/cli/command.h"
#include "megatron/config/chaos_options.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/launch_options.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/world_rules.h"

namespace megatron {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kDistributedTimeoutMinutes = "0.2";  ///< unless the command has one

/// The command that is broken, read as the launcher and the ranks read it.
struct BrokenCommand {
  Words launch_flags;  ///< with "launch", without "--"
  Words training;      ///< "pretrain", …
  LaunchPlan plan;
  RunConfig run;
};

BrokenCommand read_command(const Words& command) {
  const UserError usage({"the command after --", "must be launch … -- pretrain …",
                         "write for example: megatron chaos -- launch --nproc-per-node 4 -- "
                         "pretrain gpt …"});
  if (command.front() != "launch") throw usage;
  BrokenCommand read;
  const auto separator = std::ranges::find(command, std::string("--"));
  read.launch_flags.assign(command.begin(), separator);
  read.plan = read_launch_plan(std::span(command).subspan(1), process_environment(),
                               {.num_cpus = num_cpus(), .num_gpus = 0});
  read.training = read.plan.command;
  if (read.training.front() != "pretrain") throw usage;
  if (read.plan.max_nodes > 1)
    throw UserError({"--nnodes " + std::to_string(read.plan.max_nodes),
                     "is more than one host, whose ranks chaos cannot reach", "use one host"});
  read.run = read_run(std::span(read.training).subspan(1), read.plan.max_world_size());
  if (read.run.options.settings.training->train_iters < 2)
    throw UserError({"--train-iters",
                     "must be given and be at least 2: faults happen between steps",
                     "add --train-iters 40"});
  return read;
}

bool has_distributed_timeout(const BrokenCommand& command) {
  return command.run.parsed.is_set("distributed_timeout_minutes");
}

/// Returns after how many minutes ranks that wait for a stopped one end.
double distributed_timeout_minutes(const BrokenCommand& command) {
  return has_distributed_timeout(command)
             ? command.run.options.settings.parallel->distributed_timeout_minutes
             : std::stod(kDistributedTimeoutMinutes);
}

/// Returns the words of one run, which saves to `folder` and continues from there.
Words words_of(const BrokenCommand& command, const std::filesystem::path& folder,
               std::int64_t max_restarts, bool flips_bits) {
  const Settings& settings = command.run.options.settings;
  Words words = command.launch_flags;
  words.insert(words.end(), {"--max-restarts", std::to_string(max_restarts), "--"});
  words.insert(words.end(), command.training.begin(), command.training.end());
  words.insert(words.end(),
               {"--save", folder.string(), "--load", folder.string(), "--log-interval", "1"});
  // The two runs must not meet in a folder that the command names.
  if (!settings.checkpoint->non_persistent_local_ckpt_dir.empty())
    words.insert(words.end(), {"--non-persistent-local-ckpt-dir", folder.string() + ".local"});
  if (!settings.checkpoint->non_persistent_global_ckpt_dir.empty())
    words.insert(words.end(), {"--non-persistent-global-ckpt-dir", folder.string() + ".global"});
  if (!settings.checkpoint->save_interval) {
    const std::int64_t interval = std::max<std::int64_t>(1, settings.training->train_iters / 8);
    words.insert(words.end(), {"--save-interval", std::to_string(interval)});
  }
  if (flips_bits && settings.parallel->check_weight_hash_across_dp_replicas_interval == 0)
    words.insert(words.end(), {"--check-weight-hash-across-dp-replicas-interval", "1"});
  if (!has_distributed_timeout(command))
    words.insert(words.end(), {"--distributed-timeout-minutes", kDistributedTimeoutMinutes});
  return words;
}

std::filesystem::path make_scratch(const ChaosOptions& options) {
  if (options.scratch.empty()) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "megatron-chaos-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw_file_error("create", pattern, errno);
    return pattern;
  }
  megatron::create_directories(options.scratch);
  if (!fs::is_empty(options.scratch))
    throw UserError({"--scratch " + options.scratch, "is not empty", "give an empty folder"});
  return fs::absolute(options.scratch);
}

bool flips_bits(const ChaosOptions& options) {
  return std::ranges::count(options.kinds, std::string("bit-flip")) > 0;
}

/// Refuses bit flips in a run that has nothing to compare a weight with.
void check_replicas_exist(const BrokenCommand& command) {
  const Settings& settings = command.run.options.settings;
  const ParallelConfig& parallel = *settings.parallel;
  const char* divides = parallel.use_distributed_optimizer ? "--use-distributed-optimizer"
                        : parallel.use_megatron_fsdp       ? "--use-megatron-fsdp"
                        : parallel.use_torch_fsdp2         ? "--use-torch-fsdp2"
                                                           : nullptr;
  if (divides != nullptr)
    throw UserError({"--kinds bit-flip",
                     std::string("changes a weight of one replica, but ") + divides +
                         " keeps one copy of each weight, which no replica contradicts",
                     std::string("leave ") + divides + " out"});
  if (data_parallel_size(settings, command.plan.max_world_size()) < 2)
    throw UserError({"--kinds bit-flip",
                     "changes a weight of one replica, but --data-parallel-size is 1",
                     "start more ranks"});
}

ChaosOutcome run_one(const BrokenCommand& command, const fs::path& folder,
                     std::vector<Fault> faults, const ChaosOptions& options) {
  const std::string name = folder.filename().string();
  const bool flips = flips_bits(options);
  const fs::path published = flips ? folder.parent_path() / (name + ".weights") : fs::path();
  if (flips) megatron::create_directories(published);
  // Without a restart, --inprocess-restart is refused.
  const std::int64_t fewest = command.run.options.settings.parallel->inprocess_restart ? 1 : 0;
  const std::int64_t restarts = std::max(fewest, std::ssize(faults));
  ProgressBar bar(
      {.title = name,
       .total = static_cast<std::uint64_t>(command.run.options.settings.training->train_iters),
       .unit = "steps"});
  return run_with_faults(
      {.command = words_of(command, folder, restarts, flips),
       .log = folder.parent_path() / (name + ".log"),
       .num_ranks = command.plan.max_world_size(),
       .faults = std::move(faults),
       .timeout_s = seconds_until_hung(options, distributed_timeout_minutes(command)),
       .published_weights = published,
       .progress = [&](std::int64_t done) { bar.update(static_cast<std::uint64_t>(done)); }});
}

/// Returns how the weights of two folders of checkpoints differ; "" if they are equal.
std::string difference_of(const fs::path& one, const fs::path& other) {
  const ProgramOutput diff =
      output_of_program({"checkpoint", "diff", one.string(), other.string()});
  if (diff.code == 0 && diff.text.starts_with("0 of ")) return "";
  if (diff.text.empty())
    return "`megatron checkpoint diff` ended with exit code " + std::to_string(diff.code);
  const std::size_t last = diff.text.find_last_of('\n', diff.text.size() - 2);
  return diff.text.substr(last == std::string::npos ? 0 : last + 1);
}

std::vector<FaultKind> kinds_of(const ChaosOptions& options) {
  std::vector<FaultKind> kinds;
  for (const std::string& name : options.kinds) kinds.push_back(fault_kind(name));
  return kinds;
}

}  // namespace

const FieldSet& chaos_fields() { return chaos_table().set(); }

int run_chaos(std::span<const std::string> args) try {
  Words words;
  const ChaosOptions options = read_chaos_options(args, words);
  const BrokenCommand command = read_command(words);
  if (flips_bits(options)) check_replicas_exist(command);
  seconds_until_hung(options, distributed_timeout_minutes(command));  // refuses a contradiction
  const fs::path scratch = make_scratch(options);
  ChaosResult result{.seed = static_cast<std::uint64_t>(options.seed),
                     .num_ranks = command.plan.max_world_size(),
                     .train_iters = command.run.options.settings.training->train_iters,
                     .num_wanted = options.faults};
  const fs::path reference = scratch / "without-faults", broken = scratch / "with-faults";
  result.reference = run_one(command, reference, {}, options);
  if (result.reference.code != 0 || result.reference.hung)
    throw UserError({"the run without faults",
                     result.reference.hung
                         ? "finishes no step for so long as --timeout-seconds says"
                         : "ends with exit code " + std::to_string(result.reference.code),
                     "see " + reference.string() + ".log"});
  result.broken = run_one(command, broken,
                          plan_faults({.seed = result.seed,
                                       .num_faults = options.faults,
                                       .num_ranks = result.num_ranks,
                                       .train_iters = result.train_iters,
                                       .kinds = kinds_of(options)}),
                          options);
  result.checkpoint_difference = difference_of(reference, broken);
  std::cout << (options.json ? chaos_json(result) : chaos_text(result)) << std::flush;
  const bool is_right = problems_of(result).empty();
  if (!is_right)
    std::cerr << "megatron chaos: logs and checkpoints are in " << scratch.string() << std::endl;
  if (is_right && options.scratch.empty()) remove_tree(scratch);
  return is_right ? 0 : 1;
} catch (const ChaosInterrupted& interrupted) {
  std::cerr << "megatron chaos: stopped by " << ::strsignal(interrupted.signal)
            << "; all ranks were killed, and logs and checkpoints stay in "
            << interrupted.log.parent_path().string() << std::endl;
  return 128 + interrupted.signal;
}

}  // namespace megatron
