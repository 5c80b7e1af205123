#include "megatron/cli/engine/plan_checks.h"

#include <algorithm>
#include <string>

#include "megatron/base/error.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"

namespace megatron {

void read_planned_run(Settings& run, ParseResult& parsed) {
  Problems problems;
  translate_legacy_flags(run, parsed, problems);
  Settings settings = run;
  const auto require = [&](const char* flag, std::int64_t value) {
    if (value == 0) problems.add({flag, "is required", std::string("add ") + flag + " N"});
  };
  resolve(settings);
  require("--seq-length", settings.training->seq_length);
  require("--micro-batch-size", settings.training->micro_batch_size);
  if (settings.model->num_layers > 0) require("--vocab-size", settings.model->vocab_size);
  if (settings.parallel->hybrid_context_parallel)
    problems.add(
        {"--hybrid-context-parallel",
         "divides documents by their lengths, which a plan does not know",
         "leave it out, and plan with --seq-length of --max-seqlen-per-dp-cp-rank tokens"});
  const ParallelConfig& parallel = *settings.parallel;
  if (std::ranges::count(parallel.cp_comm_type, CpCommType::a2a_p2p) > 0 &&
      parallel.hierarchical_context_parallel_sizes.size() != 2)
    problems.add({"--cp-comm-type a2a+p2p", "needs two --hierarchical-context-parallel-sizes",
                  "add them together with --context-parallel-size, or plan with another type"});
  problems.add(validate_model(settings));
  problems.throw_if_any();
}

}  // namespace megatron
