#include "megatron/config/diagnosis_options.h"

#include "megatron/config/command_line.h"

namespace megatron {

const FieldTable<ReplayOptions>& replay_table() {
  return field_table<ReplayOptions>([](auto& t) {
    t.about(
        "Runs the microbatch of FILE again, forward and backward, with the dropout of the run. "
        "Prints the norms of every op and the first op whose result is not finite. `megatron "
        "pretrain` writes such files to --save if a loss or gradient is not finite.");
    t.group("Replay");
    t.field("file", &ReplayOptions::file, "batch_iter_….safetensors file of a run")
        .positional()
        .required();
    t.field("load", &ReplayOptions::load,
            "folder of the checkpoint with the weights; none: the one that the file names")
        .value_name("DIR");
    t.field("ckpt_step", &ReplayOptions::ckpt_step,
            "iteration to load from --load; none: the latest")
        .at_least(0);
    t.field("json", &ReplayOptions::json, "print one JSON object instead of a table");
  });
}

ReplayOptions read_replay_options(std::span<const std::string> args) {
  ReplayOptions options;
  parse_command_line(replay_table(), args, options, "replay");
  return options;
}

const FieldTable<HangReportFlags>& hang_report_table() {
  return field_table<HangReportFlags>([](auto& t) {
    t.about(
        "Merges what the ranks of a run wrote when it hung or failed, or on SIGUSR2, and says "
        "which rank blocks which others, in which call of which layer, where ranks made different "
        "calls, and where the rank at fault is. `megatron pretrain` writes such folders to "
        "--hang-report-dir, or to hang-reports in --tensorboard-dir or --save.");
    t.group("Hang report");
    t.field("folder", &HangReportFlags::folder, "folder with a file rank-<rank>.json of each rank")
        .positional()
        .required();
    t.field("json", &HangReportFlags::json, "print one JSON object instead of tables");
  });
}

HangReportFlags read_hang_report_flags(std::span<const std::string> args) {
  HangReportFlags flags;
  parse_command_line(hang_report_table(), args, flags, "hang-report");
  return flags;
}

}  // namespace megatron
