// The commands of `megatron`. To add one: write `int run_x(std::span<const std::string> args)` and
// its line in commands.cpp.
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
  /// Runs in this process without LibTorch; null: the engine runs it.
  int (*run)(std::span<const std::string> args) = nullptr;
  /// The command's flags, for completion and documentation; null: only the engine knows them.
  const FieldSet& (*fields)() = nullptr;
  /// Throws what `run` would throw at once in a world of so many ranks: `launch` asks before it
  /// starts them. Null: there is nothing to ask.
  void (*check)(std::span<const std::string> args, std::int64_t world_size) = nullptr;
};

/// Every command of this version, in the order of the help.
std::span<const Command> commands();

/// The command called `name`, or null.
const Command* find_command(std::string_view name);

/// Why a command that the design knows is not in this version; empty for any other word.
std::string_view absent_command_reason(std::string_view name);

/// Runs the command that the arguments say and returns its exit code; throws nothing.
int dispatch(const std::vector<std::string>& args);

/// UserError for a word that is no command: the nearest one, or why it is not in this version.
[[noreturn]] void refuse_command(const std::string& name);

/// `megatron help [command]`, `help --markdown`, `help --man`.
int run_help(std::span<const std::string> args);
const FieldSet& help_fields();

/// `megatron completion bash|zsh|fish`: the shell's completion script on stdout.
int run_completion(std::span<const std::string> args);
const FieldSet& completion_fields();

/// `megatron pretrain` up to the engine.
int run_pretrain_frontend(std::span<const std::string> args);
const FieldSet& pretrain_fields();
void check_pretrain(std::span<const std::string> args, std::int64_t world_size);

/// `megatron launch … -- <command>`: the command as many ranks.
int run_launch(std::span<const std::string> args);
const FieldSet& launch_fields();

/// `megatron plan --show-schedule`: pipeline schedules drawn and compared.
int run_plan(std::span<const std::string> args);
const FieldSet& plan_fields();

/// `megatron replay` up to the engine.
int run_replay_frontend(std::span<const std::string> args);
const FieldSet& replay_fields();

/// `megatron generate` and `megatron score` up to the engine.
int run_generate_frontend(std::span<const std::string> args);
const FieldSet& generate_fields();
void check_generate(std::span<const std::string> args, std::int64_t world_size);
int run_score_frontend(std::span<const std::string> args);
const FieldSet& score_fields();
void check_score(std::span<const std::string> args, std::int64_t world_size);

/// `megatron tokenize`: lines on stdin to ids, one JSON array a line, and back.
int run_tokenize(std::span<const std::string> args);
const FieldSet& tokenize_fields();

/// `megatron preprocess-data`: text to .bin/.idx datasets.
int run_preprocess_data(std::span<const std::string> args);
const FieldSet& preprocess_data_fields();

/// `megatron dataset show|info|merge`.
int run_dataset(std::span<const std::string> args);
const FieldSet& dataset_fields();

/// `megatron report DIR...`: the charts of a run as an HTML page.
int run_report(std::span<const std::string> args);
const FieldSet& report_fields();

/// `megatron convert` and `megatron checkpoint` up to the engine.
int run_convert_frontend(std::span<const std::string> args);
const FieldSet& convert_fields();
int run_checkpoint_frontend(std::span<const std::string> args);
const FieldSet& checkpoint_fields();

/// Loads libmegatron_engine.so from beside the program; processes forked afterwards have it.
/// UserError when it cannot be loaded.
void preload_engine();
/// Runs the command in the engine, loading it when that has not been done.
int run_in_engine(std::string_view command, std::span<const std::string> args);

}  // namespace megatron
