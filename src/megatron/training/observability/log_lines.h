// Formats the lines of a training log exactly as Megatron-LM does, so that its log readers work
// here. Pure functions from numbers to text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// The values of one iteration line.
struct IterationReport {
  /// The last step, with losses, throughput and elapsed_s as averages over the iterations since the
  /// last line. Negative losses are left out, as in Megatron.
  StepMetrics step;
  std::int64_t skipped_iterations = 0, nan_iterations = 0;
  bool shows_throughput = false;  ///< TFLOP/s per GPU
};

/// Returns ` [time] iteration … |` with Megatron's fields in Megatron's order, then tokens per
/// second and MFU.
std::string iteration_line(const IterationReport& report, std::string_view time);

/// Returns the validation line ` validation loss at {where} | lm loss value: … | lm loss PPL: … | `
/// between two lines of dashes, with PPL = exp(min(20, loss)). `suffix` follows the word
/// "validation": "-<name>" when there are several validation sets.
std::string validation_block(std::string_view where, const NamedLosses& losses,
                             std::string_view suffix = {});

/// Returns a line on the documents of a step over `num_ranks` ranks, for hybrid context
/// parallelism.
std::string hybrid_context_line(const HybridContextSummary& step, std::int64_t num_ranks);

/// Returns `[event] datetime: YYYY-MM-DD HH:MM:SS `.
std::string event_line(std::string_view event, std::string_view time);

/// Returns the local time as YYYY-MM-DD HH:MM:SS.
std::string current_time();

}  // namespace megatron
