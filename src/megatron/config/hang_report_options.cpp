#include "megatron/config/hang_report_options.h"

#include "megatron/config/command_line.h"

namespace megatron {

const FieldTable<HangReportFlags>& hang_report_table() {
  static const FieldTable<HangReportFlags> table = [] {
    FieldTable<HangReportFlags> t;
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
    return t;
  }();
  return table;
}

HangReportFlags read_hang_report_flags(std::span<const std::string> args) {
  HangReportFlags flags;
  parse_command_line(hang_report_table(), args, flags, "hang-report");
  return flags;
}

}  // namespace megatron
