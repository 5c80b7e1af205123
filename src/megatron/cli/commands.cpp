// The table of commands.
#include <algorithm>
#include <array>

#include "megatron/cli/command.h"

namespace megatron {
namespace {

constexpr std::array kCommands{
    Command{"pretrain", "train a model", "Train", run_pretrain_frontend, pretrain_fields,
            check_pretrain},
    Command{"launch", "run a command on several ranks", "Train", run_launch, launch_fields},
    Command{"report", "write the charts of runs as an HTML page", "Train", run_report,
            report_fields},
    Command{"replay", "run a saved microbatch again and print every op's norms", "Train",
            run_replay_frontend, replay_fields},
    Command{"hang-report", "say which rank blocked a run that hung, and where", "Train",
            run_hang_report_frontend, hang_report_fields},
    Command{"chaos", "break a run on purpose and compare it with the unbroken one", "Train",
            run_chaos, chaos_fields},
    Command{"check", "compare a layout with one rank before it runs", "Train", run_check_frontend,
            check_fields},
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
    Command{"generate", "continue texts with a trained model", "Use", run_generate_frontend,
            generate_fields, check_generate},
    Command{"score", "print log-probabilities of token ids", "Use", run_score_frontend,
            score_fields, check_score},
    Command{"convert", "convert weights between checkpoints and Hugging Face directories",
            "Checkpoints", run_convert_frontend, convert_fields},
    Command{"checkpoint", "inspect, verify or compare checkpoints", "Checkpoints",
            run_checkpoint_frontend, checkpoint_fields},
    Command{"help", "show the help of a command", "About", run_help, help_fields},
    Command{"completion", "print the completion script of bash, zsh or fish", "About",
            run_completion, completion_fields},
};

constexpr std::array kAbsent{
    std::pair<std::string_view, std::string_view>{"serve", "use `megatron generate`"},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view name) {
  const auto found = std::find_if(kCommands.begin(), kCommands.end(),
                                  [&](const Command& command) { return command.name == name; });
  return found == kCommands.end() ? nullptr : &*found;
}

std::string_view absent_command_reason(std::string_view name) {
  const auto found = std::find_if(kAbsent.begin(), kAbsent.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == kAbsent.end() ? std::string_view{} : found->second;
}

}  // namespace megatron
