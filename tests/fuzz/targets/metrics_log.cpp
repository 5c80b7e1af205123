// metrics.jsonl, which the report reads. The input is the file.
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/metrics/report/run_log.h"

namespace megatron::fuzz {

void parse_metrics_log(std::string_view input) {
  read_run_log(write_input("metrics.jsonl", input));
}

}  // namespace megatron::fuzz
