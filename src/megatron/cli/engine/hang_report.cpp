// Implements `megatron hang-report`: merges what ranks wrote when a run hung.
#include <iostream>

#include "megatron/cli/engine/engine.h"
#include "megatron/config/hang_report_options.h"
#include "megatron/parallel/failure/dump_analysis.h"

namespace megatron {

int run_hang_report(std::span<const std::string> args) {
  const HangReportFlags flags = read_hang_report_flags(args);
  std::int64_t num_older = 0;
  const std::vector<RankDump> dumps = read_dumps(flags.folder, num_older);
  if (num_older > 0)
    std::cerr << "note: " << num_older << " files of earlier starts of the run are left out\n";
  const HangAnalysis analysis = analyze_dumps(dumps);
  std::cout << (flags.json ? hang_report_json(dumps, analysis) : hang_report_text(dumps, analysis))
            << std::flush;
  return 0;
}

}  // namespace megatron
