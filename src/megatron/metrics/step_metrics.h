// The metrics of a training step or an evaluation as plain numbers, the input of every metrics
// writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/schedules/hybrid_context_summary.h"

namespace megatron {

/// What the router of a layer with experts did in one step, over the whole batch.
struct LayerRouting {
  std::int64_t layer = 0;    ///< 0-based index in the model
  std::vector<double> load;  ///< choices of each expert that were not dropped
  double dropped = 0;        ///< choices beyond the capacity
  double entropy = 0;        ///< mean over tokens of Σ −p·ln p of the scores
  /// Auxiliary losses without their coefficients, means over the microbatches, under Megatron's
  /// names ("load_balancing_loss"). Those with a coefficient of 0 are left out.
  std::vector<std::pair<std::string, double>> losses;

  /// Returns the largest load divided by the mean; 1 is even. 0 without any choice.
  double imbalance() const;
};

/// Returns the means over layers of the auxiliary losses.
std::vector<std::pair<std::string, double>> mean_losses(const std::vector<LayerRouting>& layers);

struct RankTime {
  std::int64_t rank = 0;
  double seconds = 0;
};

/// A part of a step on the fastest and on the slowest ranks: own time per step, ascending.
struct PartTimes {
  std::string part;  ///< "data", "forward", …
  std::vector<RankTime> fastest, slowest;
};

/// A part in which a rank is slower than its peers. Times are medians over the steps.
struct SlowPart {
  std::string part;
  double own_s = 0;    ///< own time per step
  double peers_s = 0;  ///< median over the peers of their own time per step
  double ratio = 1;    ///< median of the ratio of the two in each step
};

/// A rank that is slower than its peers, which are the other ranks of its pipeline stage.
struct Straggler {
  std::int64_t rank = 0;
  std::string host;
  std::vector<SlowPart> parts;  ///< the largest excess first
};

/// The times that ranks took for the parts of a step, without their waits for each other, and the
/// ranks that are slower than their peers (--log-straggler).
struct StragglerMetrics {
  std::int64_t first_iteration = 0, last_iteration = 0;  ///< of the times in `parts`
  std::vector<PartTimes> parts = {};
  std::vector<Straggler> stragglers = {};  ///< the ranks that are slow now
};

/// Name and value of each reported loss, in printing order ("lm loss").
using NamedLosses = std::vector<std::pair<std::string, double>>;

/// Memory of this process in bytes. On a GPU: reserved and allocated bytes of the caching
/// allocator. On a CPU: resident set and heap.
struct MemoryMetrics {
  double reserved_bytes = 0, max_reserved_bytes = 0;
  double allocated_bytes = 0;
  std::optional<double> max_allocated_bytes;  ///< only on a GPU
  std::optional<double> allocated_count;      ///< number of allocated blocks; only on a GPU
};

/// Rates of a step or interval, per device.
struct ThroughputMetrics {
  double tokens_per_second = 0;
  /// Model FLOP/s as Megatron counts them: only the unmasked half of causal attention, no
  /// recomputation.
  double flops_per_second = 0;
  std::optional<double> mfu;  ///< fraction of peak with full attention counted (PaLM, appendix B)
  std::optional<double> mfu_causal;  ///< fraction of peak without the masked half of attention
};

/// Communication of one step over one axis of the mesh, on this rank.
struct AxisCommStats {
  std::string axis;
  std::int64_t calls = 0, bytes = 0;
  double exposed_ms = 0;  ///< time during which the rank only waited
};

struct StepMetrics {
  std::int64_t iteration = 0, train_iters = 0;
  std::int64_t consumed_samples = 0, skipped_samples = 0;
  std::int64_t global_batch_size = 0, world_size = 1;
  NamedLosses losses;
  double learning_rate = 0;
  std::optional<double> decoupled_learning_rate;
  double loss_scale = 1;
  std::optional<double> grad_norm, params_norm, max_attention_logit;
  std::optional<std::int64_t> num_zeros;
  bool is_skipped = false;  ///< the update was not applied
  double elapsed_s = 0;
  ThroughputMetrics throughput;
  std::optional<MemoryMetrics> memory;
  std::vector<AxisCommStats> traffic = {};                  ///< empty without --log-comm
  std::vector<LayerRouting> routing = {};                   ///< of the layers with experts
  std::optional<HybridContextSummary> hybrid_context = {};  ///< with --hybrid-context-parallel
  std::optional<StragglerMetrics> stragglers = {};          ///< with --log-straggler, at times
  bool logs_layers_routing = false;  ///< each layer by itself (--moe-per-layer-logging)
};

struct EvaluationMetrics {
  std::int64_t iteration = 0, consumed_samples = 0;
  std::string split;   ///< "validation" or "test"
  std::string suffix;  ///< "-<name>" when there are several validation sets
  NamedLosses losses;
};

/// Returns whether the reported value of this name is a loss, which has a perplexity; an accuracy
/// has none.
bool has_perplexity(std::string_view name);

/// Returns exp(min(20, loss)), as Megatron does.
double perplexity(double loss);

/// Returns one line of metrics.jsonl.
JsonText json_line(const StepMetrics& step);
JsonText json_line(const EvaluationMetrics& evaluation);

}  // namespace megatron
