// Formats the lines of a training log exactly as Megatron-LM does, so that its log readers work
// here: startup, iterations, evaluations. Pure functions from numbers to text.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/base/progress_bar.h"
#include "megatron/config/data_phase.h"
#include "megatron/metrics/step_metrics.h"

namespace megatron {

struct Rank;

/// Returns `using world size: 1, data-parallel size: 1, …`.
std::string world_line(const Rank& rank);

/// Returns ` > padded vocab (size: …) with … dummy tokens (new size: …)`.
std::string padded_vocab_line(std::int64_t vocab_size, std::int64_t padded_size);

/// Returns the lines with the requested sizes of the three datasets. nullopt is printed as None and
/// means one epoch.
std::string dataset_sizes_block(const std::array<std::optional<std::int64_t>, 3>& samples);

/// Returns `> phase 2 of 3 of the data: iterations 501 to 1000, …`.
std::string phase_line(const DataPhase& phase);

/// Returns ` > number of parameters on (tensor, pipeline) model parallel rank (0, 0): N`.
std::string parameter_count_line(std::int64_t parameters);

/// Where the lines of the training loop go: an output stream, and a progress bar on the same
/// terminal that must be cleared before lines are printed.
struct Console {
  std::ostream& out;
  ProgressBar& bar;

  /// Returns the stream, ready for lines.
  std::ostream& lines() const {
    bar.clear();
    return out;
  }
};

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
/// between two lines of dashes, with PPL = exp(min(20, loss)) where has_perplexity(). `suffix`
/// follows the word "validation": "-<name>" when there are several validation sets.
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
