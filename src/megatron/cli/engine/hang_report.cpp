// Implements `megatron hang-report`: merges what ranks wrote when a run hung.
#include <iostream>

#include "megatron/cli/engine/engine.h"
#include "megatron/config/diagnosis_options.h"
#include "megatron/parallel/failure/dump_analysis.h"

namespace megatron {

int run_hang_report(std::span<const std::string> args, const ModelFamilies& /*families*/) {
  const HangReportFlags flags = read_hang_report_flags(args);
  const auto [dumps, num_older, problems, unreadable] = read_dumps(flags.folder);
  if (num_older > 0)
    std::cerr << "note: " << num_older << " files of earlier starts of the run are left out\n";
  for (const std::string& problem : problems)
    std::cerr << "note: a file is left out: " << problem << "\n";
  const HangAnalysis analysis = analyze_dumps(dumps, unreadable);
  std::cout << (flags.json ? hang_report_json(dumps, analysis) : hang_report_text(dumps, analysis))
            << std::flush;
  return 0;
}

}  // namespace megatron
