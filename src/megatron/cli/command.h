// The commands of `megatron`. To add one, write `int run_x(std::span<const std::string> args)` and
// add a line in commands.cpp, which has the front ends of those that the engine runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/field.h"

namespace megatron {

/// One command of the program.
struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view group;
  /// Runs the command in this process, or checks its flags and runs it in the engine.
  int (*run)(std::span<const std::string> args) = nullptr;
  /// Returns the command's flags, for completion and documentation. If null, only the engine knows
  /// them.
  const FieldSet& (*fields)() = nullptr;
  /// Checks the arguments for a world of `world_size` ranks and throws what `run` would throw.
  /// `launch` calls it before it loads the engine and starts the ranks. If null, the command runs
  /// on one rank, and `launch` loads no engine for it.
  void (*check)(std::span<const std::string> args, std::int64_t world_size) = nullptr;
};

/// Returns all commands, in the order of the help.
std::span<const Command> commands();

/// Returns the command called `name`, or null.
const Command* find_command(std::string_view name);

/// Runs the command that the arguments name and returns its exit code. Does not throw.
int dispatch(const std::vector<std::string>& args);

/// Returns the command that a misspelt or foreign name means, "pretrain gpt" for "train"; "": none.
std::string nearest_command(const std::string& name);

/// Throws a UserError for a word that is not a command. It names the nearest command.
[[noreturn]] void refuse_command(const std::string& name);

/// Runs `megatron help [command]`, `help --markdown` or `help --man`.
int run_help(std::span<const std::string> args);
const FieldSet& help_fields();

/// Runs `megatron completion bash|zsh|fish`, which prints the shell's completion script.
int run_completion(std::span<const std::string> args);
const FieldSet& completion_fields();

/// Runs `megatron launch … -- <command>`, which runs the command on several ranks.
int run_launch(std::span<const std::string> args);
const FieldSet& launch_fields();

/// Runs `megatron chaos … -- launch … -- pretrain …`, which breaks ranks on purpose.
int run_chaos(std::span<const std::string> args);
const FieldSet& chaos_fields();

/// Runs `megatron plan`: searches layouts in the engine, or with --show-schedule draws and compares
/// pipeline schedules in this process, or with --show-context draws context parallelism.
int run_plan(std::span<const std::string> args);
int run_plan_context(std::span<const std::string> args);
const FieldSet& plan_fields();

/// Runs `megatron tokenize`, which converts lines on stdin to JSON arrays of ids, and back.
int run_tokenize(std::span<const std::string> args);
const FieldSet& tokenize_fields();

/// Runs `megatron tokenizer train|info|diff`.
int run_tokenizer(std::span<const std::string> args);
const FieldSet& tokenizer_fields();

/// Runs `megatron preprocess-data`, which converts text to .bin/.idx datasets.
int run_preprocess_data(std::span<const std::string> args);
const FieldSet& preprocess_data_fields();

/// Runs `megatron dataset show|info|merge`, or `dataset plan`: what a run, whose flags it takes,
/// will take of its data.
int run_dataset(std::span<const std::string> args);
int run_dataset_plan(std::span<const std::string> args);
const FieldSet& dataset_fields();

/// Runs `megatron report DIR...`, which writes the charts of runs as an HTML page.
int run_report(std::span<const std::string> args);
const FieldSet& report_fields();

/// Runs `megatron bench-serve`, which measures a server under load.
int run_bench_serve(std::span<const std::string> args);

/// Loads libmegatron_engine.so. Processes that are forked afterwards inherit it. Throws a UserError
/// if it cannot be loaded.
void preload_engine();
/// Runs the command in the engine, which is loaded if necessary, and returns its exit code.
int run_in_engine(std::string_view command, std::span<const std::string> args);

}  // namespace megatron
