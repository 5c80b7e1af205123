#include "megatron/training/observability/log_lines.h"

#include <ctime>

#include "megatron/base/format.h"
#include "megatron/base/wall_clock.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

using Integer = long long;

std::string progress_fields(const StepMetrics& step, bool shows_throughput) {
  std::string line =
      format(" iteration %8lld/%8lld | consumed samples: %12lld |", Integer{step.iteration},
             Integer{step.train_iters}, Integer{step.consumed_samples});
  if (step.skipped_samples > 0)
    line += format(" skipped samples: %12lld |", Integer{step.skipped_samples});
  line += format(" elapsed time per iteration (ms): %.1f |", step.elapsed_s * 1000);
  if (shows_throughput)
    line += format(" throughput per GPU (TFLOP/s/GPU): %.1f |",
                   step.throughput.flops_per_second / 1e12);
  return line;
}

std::string update_fields(const StepMetrics& step) {
  std::string line = format(" learning rate: %.6E |", step.learning_rate);
  if (step.decoupled_learning_rate)
    line += format(" decoupled learning rate: %.6E |", *step.decoupled_learning_rate);
  line += format(" global batch size: %5lld |", Integer{step.global_batch_size});
  for (const auto& [name, value] : step.losses) {
    if (!(value < 0)) line += format(" %s: %.6E |", name.c_str(), value);
  }
  line += format(" loss scale: %.1f |", step.loss_scale);
  if (step.grad_norm) line += format(" grad norm: %.3f |", *step.grad_norm);
  if (step.num_zeros) line += format(" num zeros: %lld |", Integer{*step.num_zeros});
  if (step.params_norm) line += format(" params norm: %.3f |", *step.params_norm);
  if (step.max_attention_logit)
    line += format(" max attention logit: %.3f |", *step.max_attention_logit);
  return line;
}

std::string count_fields(const IterationReport& report) {
  const ThroughputMetrics& rates = report.step.throughput;
  std::string line = format(
      " number of skipped iterations: %3lld | number of nan iterations: %3lld | tokens per second: "
      "%.0f |",
      Integer{report.skipped_iterations}, Integer{report.nan_iterations}, rates.tokens_per_second);
  if (rates.mfu) line += format(" MFU: %.1f%% |", *rates.mfu * 100);
  if (rates.mfu_causal) line += format(" MFU (causal): %.1f%% |", *rates.mfu_causal * 100);
  return line;
}

}  // namespace

std::string world_line(const Rank& rank) {
  const std::string levels =
      rank.cp_a2a.size > 1
          ? format("[%lld, %lld]", Integer{rank.cp_a2a.size}, Integer{rank.cp_p2p.size})
          : "None";
  return format(
      "using world size: %lld, data-parallel size: %lld, context-parallel size: %lld, hierarchical "
      "context-parallel sizes: %s, "
      "tensor-model-parallel size: %lld, pipeline-model-parallel size: %lld",
      Integer{rank.world.size}, Integer{rank.dp.size}, Integer{rank.cp.size}, levels.c_str(),
      Integer{rank.tp.size}, Integer{rank.pp.size});
}

std::string padded_vocab_line(std::int64_t vocab_size, std::int64_t padded_size) {
  return format(" > padded vocab (size: %lld) with %lld dummy tokens (new size: %lld)",
                Integer{vocab_size}, Integer{padded_size - vocab_size}, Integer{padded_size});
}

std::string dataset_sizes_block(const std::array<std::optional<std::int64_t>, 3>& samples) {
  const auto text = [&](std::size_t split) {
    return samples[split] ? std::to_string(*samples[split]) : "None";
  };
  return "> building train, validation, and test datasets ...\n > datasets target sizes (minimum "
         "size):\n    train:      " +
         text(0) + "\n    validation: " + text(1) + "\n    test:       " + text(2);
}

std::string phase_line(const DataPhase& phase) {
  return format(
      "> phase %lld of %lld of the data: iterations %lld to %lld, %lld samples from the first of "
      "their data set on",
      Integer{phase.index + 1}, Integer{phase.count}, Integer{phase.begin + 1}, Integer{phase.end},
      Integer{phase.num_samples});
}

std::string parameter_count_line(std::int64_t parameters) {
  return " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): " +
         std::to_string(parameters);
}

std::string iteration_line(const IterationReport& report, std::string_view time) {
  return " [" + std::string(time) + "]" + progress_fields(report.step, report.shows_throughput) +
         update_fields(report.step) + count_fields(report);
}

std::string validation_block(std::string_view where, const NamedLosses& losses,
                             std::string_view suffix) {
  std::string line = " validation" + std::string(suffix) + " loss at " + std::string(where) + " | ";
  for (const auto& [name, value] : losses) {
    line += format("%s value: %.6E | ", name.c_str(), value);
    if (has_perplexity(name)) line += format("%s PPL: %.6E | ", name.c_str(), perplexity(value));
  }
  const std::string frame(line.size() + 1, '-');
  return frame + "\n" + line + "\n" + frame;
}

std::string hybrid_context_line(const HybridContextSummary& step, std::int64_t num_ranks) {
  return format(
      " > hybrid context parallelism: %lld documents of this step lie on %lld ranks in %lld "
      "microbatches each; by the cost model the step takes %.1f %% longer than a rank works on "
      "average, %.1f %% of the rows are padding",
      Integer{step.num_sequences}, Integer{num_ranks}, Integer{step.num_microbatches},
      100 * step.imbalance, 100 * step.padding);
}

std::string event_line(std::string_view event, std::string_view time) {
  return "[" + std::string(event) + "] datetime: " + std::string(time) + " ";
}

std::string current_time() { return local_time(std::time(nullptr)); }

}  // namespace megatron
