// The table of commands, with the front ends of those that the engine runs: they print the help and
// report mistakes in the flags before the engine is loaded. Finds and runs the command that
// arguments name, for the program itself and for every rank that `launch` forks.
#include <algorithm>
#include <array>
#include <iostream>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/cli/command.h"
#include "megatron/config/bench_serve_options.h"
#include "megatron/config/check_options.h"
#include "megatron/config/checkpoint_options.h"
#include "megatron/config/command_line.h"
#include "megatron/config/diagnosis_options.h"
#include "megatron/config/inference_options.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/print_config.h"
#include "megatron/config/problems.h"
#include "megatron/config/run_command.h"
#include "megatron/config/run_settings.h"

namespace megatron {
namespace {

using Args = std::span<const std::string>;

template <auto table>
const FieldSet& fields_of() {
  return table().set();
}
template <auto read>
void check_with(Args args, std::int64_t world_size) {
  read(args, world_size);
}

void print_notes(const ParseResult& parsed) { std::cerr << notes_text(parsed.notes); }

/// Runs a command in the engine as one of several ranks, or alone. A single process throws the
/// UserError of `read`; one of several ranks still runs the command in the engine, where the ranks
/// rendezvous and one of them prints the error. Rank 0 prints the help and the notes. `answer`, if
/// given, returns what it prints instead of running the command.
template <class Options>
int run_on_rank(std::string_view command, Args args, Options (*read)(Args, std::int64_t),
                std::optional<std::string> (*answer)(const Options&) = nullptr) {
  const LaunchEnvironment environment = find_launch_environment();
  const bool is_first = environment.rank == 0;
  std::optional<Options> options;
  try {
    options = read(args, environment.world_size);
  } catch (const HelpRequested&) {
    if (is_first) throw;
    return 0;
  } catch (const UserError&) {
    if (environment.world_size == 1) throw;
    return run_in_engine(command, args);
  }
  if (is_first) print_notes(options->parsed);
  const auto text = answer ? answer(*options) : std::nullopt;
  if (!text) return run_in_engine(command, args);
  if (is_first) std::cout << *text;
  return 0;
}

RunConfig read_pretrain(Args args, std::int64_t world_size) { return read_run(args, world_size); }

/// Answers --print-config.
std::optional<std::string> config_of(const RunConfig& run) {
  if (!run.options.print_config) return std::nullopt;
  return run.options.json ? config_json(run) : config_text(run);
}

int run_pretrain(Args args) { return run_on_rank("pretrain", args, read_pretrain, config_of); }
int run_generate(Args args) { return run_on_rank("generate", args, read_generate_options); }
int run_score(Args args) { return run_on_rank("score", args, read_score_options); }
int run_fill_mask(Args args) { return run_on_rank("fill-mask", args, read_fill_mask_options); }
int run_batch(Args args) { return run_on_rank("batch", args, read_batch_options); }
int run_serve(Args args) { return run_on_rank("serve", args, read_serve_options); }
int run_evaluate(Args args) { return run_on_rank("evaluate", args, read_evaluate_options); }
int run_replay(Args args) {
  read_replay_options(args);
  return run_in_engine("replay", args);
}
int run_hang_report(Args args) {
  read_hang_report_flags(args);
  return run_in_engine("hang-report", args);
}
int run_check(Args args) {
  print_notes(read_check(args).run.parsed);
  return run_in_engine("check", args);
}
int run_convert(Args args) {
  print_notes(read_convert_options(args).parsed);
  return run_in_engine("convert", args);
}
int run_checkpoint(Args args) {
  read_checkpoint_options(args);
  return run_in_engine("checkpoint", args);
}

constexpr std::array kCommands{
    Command{"pretrain", "train a model", "Train", run_pretrain, fields_of<run_table>,
            check_with<read_pretrain>},
    Command{"launch", "run a command on several ranks", "Train", run_launch, launch_fields},
    Command{"report", "write the charts of runs as an HTML page", "Train", run_report,
            report_fields},
    Command{"replay", "run a saved microbatch again and print every op's norms", "Train",
            run_replay, fields_of<replay_table>},
    Command{"hang-report", "say which rank blocked a run that hung, and where", "Train",
            run_hang_report, fields_of<hang_report_table>},
    Command{"chaos", "break a run on purpose and compare it with the unbroken one", "Train",
            run_chaos, chaos_fields},
    Command{"check", "compare a layout with one rank before it runs", "Train", run_check,
            fields_of<check_table>},
    Command{"plan", "search layouts, draw and compare pipeline schedules", "Train", run_plan,
            plan_fields},
    Command{"preprocess-data", "convert text to .bin/.idx datasets", "Data", run_preprocess_data,
            preprocess_data_fields},
    Command{"dataset", "show samples, describe and merge datasets", "Data", run_dataset,
            dataset_fields},
    Command{"tokenize", "convert text lines to token ids and back", "Data", run_tokenize,
            tokenize_fields},
    Command{"tokenizer", "train, describe and compare tokenizers", "Data", run_tokenizer,
            tokenizer_fields},
    Command{"generate", "continue texts with a trained model", "Use", run_generate,
            fields_of<generate_table>, check_with<read_generate_options>},
    Command{"batch", "answer a file of requests in OpenAI's form", "Use", run_batch,
            fields_of<batch_table>, check_with<read_batch_options>},
    Command{"serve", "serve a model over HTTP, as OpenAI's API", "Use", run_serve,
            fields_of<serve_table>, check_with<read_serve_options>},
    Command{"bench-serve", "measure a server under load", "Use", run_bench_serve,
            fields_of<bench_serve_table>},
    Command{"evaluate", "measure a model on tasks by log-likelihood", "Use", run_evaluate,
            fields_of<evaluate_table>, check_with<read_evaluate_options>},
    Command{"score", "print log-probabilities of token ids", "Use", run_score,
            fields_of<score_table>, check_with<read_score_options>},
    Command{"fill-mask", "print likely tokens for the masks of texts", "Use", run_fill_mask,
            fields_of<fill_mask_table>, check_with<read_fill_mask_options>},
    Command{"convert", "convert weights between checkpoints and Hugging Face directories",
            "Checkpoints", run_convert, fields_of<convert_table>},
    Command{"checkpoint", "inspect, verify or compare checkpoints", "Checkpoints", run_checkpoint,
            fields_of<checkpoint_command_table>},
    Command{"help", "show the help of a command", "About", run_help, help_fields},
    Command{"completion", "print the completion script of bash, zsh or fish", "About",
            run_completion, completion_fields},
};

/// The names that other programs use for the commands.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"train", "pretrain gpt"},
    {"training", "pretrain gpt"},
    {"finetune", "pretrain gpt --finetune"},
    {"preprocess", "preprocess-data"},
    {"inference", "generate"},
    {"infer", "generate"},
    {"eval", "evaluate"},
    {"run-batch", "batch"},
    {"export", "convert"},
    {"import", "convert"},
    {"inspect", "checkpoint inspect"},
    {"verify", "checkpoint verify"},
    {"run", "launch"},
});

}  // namespace

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto found = std::find_if(kCommands.begin(), kCommands.end(),
                                  [&](const Command& command) { return command.name == name; });
  return found == kCommands.end() ? nullptr : &*found;
}

std::string nearest_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  for (const auto& [other, command] : kOtherNames) names.emplace_back(other);
  const std::string near = nearest_name(name, names);
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const auto& pair) { return pair.first == near; });
  return other == kOtherNames.end() ? near : std::string(other->second);
}

void refuse_command(const std::string& name) {
  const std::string meant = nearest_command(name);
  throw UserError(
      {"'" + name + "'", "unknown command",
       meant.empty() ? "see megatron --help" : "did you mean `megatron " + meant + "`?"});
}

int dispatch(const std::vector<std::string>& args) {
  const std::span<const std::string> rest = std::span(args).subspan(1);
  const Command* command = find_command(args[0]);
  if (!command) return run_command("", [&]() -> int { refuse_command(args[0]); });
  return run_command(command->name, [&] { return command->run(rest); });
}

}  // namespace megatron
