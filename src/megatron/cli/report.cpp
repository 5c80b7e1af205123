// Implements `megatron report DIR...`: writes the metrics of one or several runs as an HTML page.
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/cli/command.h"
#include "megatron/config/field_table.h"
#include "megatron/config/problems.h"
#include "megatron/metrics/report/page.h"

namespace megatron {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
};

const FieldTable<ReportOptions>& report_table() {
  using Options = ReportOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Writes charts of one or several runs (loss, learning rate, gradient norm, throughput, "
        "memory, step times) as one HTML page that needs no network.");
    t.field("runs", &Options::runs,
            "--save or --tensorboard-dir folder of a run, or a metrics.jsonl file")
        .positional()
        .value_name("DIR");
    t.field("output", &Options::output, "file to write; default: report.html in the first DIR")
        .value_name("FILE");
  });
}

fs::path default_output(const fs::path& run) {
  return (fs::is_directory(run) ? run : run.parent_path()) / "report.html";
}

/// Uses the given paths as names if several runs have the same name.
void make_names_unique(std::vector<RunLog>& logs, const std::vector<std::string>& paths) {
  for (std::size_t i = 0; i < logs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (logs[i].name == logs[j].name) logs[i].name = paths[i];
    }
  }
}

void say_what_was_left_out(const RunLog& log) {
  if (log.unreadable_lines == 0) return;
  std::cerr << format(
                   "note: %lld of %lld lines of %s are not metrics and were skipped; the first is ",
                   static_cast<long long>(log.unreadable_lines), static_cast<long long>(log.lines),
                   log.name.c_str())
            << log.first_unreadable << "\n";
}

}  // namespace

const FieldSet& report_fields() { return report_table().set(); }

int run_report(std::span<const std::string> args) {
  ReportOptions options;
  std::cerr << notes_text(parse_command_line(report_table(), args, options, "report").notes);
  if (options.runs.empty())
    throw UserError(
        {"the folder of a run is missing", "", "write for example megatron report checkpoints"});
  std::vector<RunLog> logs;
  for (const std::string& run : options.runs) {
    logs.push_back(read_run_log(run));
    say_what_was_left_out(logs.back());
  }
  make_names_unique(logs, options.runs);
  const fs::path output =
      options.output.empty() ? default_output(options.runs[0]) : fs::path(options.output);
  write_file_atomically(output, report_page(logs));
  std::cout << output.string() << "\n";
  return 0;
}

}  // namespace megatron
