#include "megatron/training/layout_check/layout_check.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <ostream>
#include <tuple>
#include <utility>

#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/training/loop/setup.h"

namespace megatron {
namespace {

/// Places of ops and parameters in the order of the forward pass.
class ForwardOrder {
 public:
  explicit ForwardOrder(const ReferenceStep& reference) {
    for (const std::string& op : reference.ops) order_.emplace(op, order_.size());
  }
  /// Returns the place of an op, or of the op that a parameter belongs to: the last one whose name
  /// begins the parameter's.
  std::size_t of(const std::string& name) const {
    std::string prefix = name;
    for (;;) {
      if (const auto found = order_.find(prefix); found != order_.end()) return found->second;
      const std::size_t dot = prefix.rfind('.');
      if (dot == std::string::npos) return order_.size();
      prefix.resize(dot);
    }
  }

 private:
  std::map<std::string, std::size_t> order_;
};

/// Sorts differences as a step computes the values: gradients come in the order of backward.
void sort_by_time(std::vector<FoundDifference>& differences, const ReferenceStep& reference) {
  const ForwardOrder order(reference);
  const auto key = [&](const FoundDifference& one) {
    const auto place = static_cast<std::int64_t>(order.of(one.name));
    return std::tuple(one.kind, one.kind == CheckedKind::gradient ? -place : place, one.name,
                      one.rank);
  };
  std::ranges::stable_sort(differences,
                           [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

}  // namespace

LayoutCheckResult check_layout(const ScaledRun& scaled, const LayoutCheckOptions& options) {
  const double start = monotonic_seconds();
  const ReferenceStep reference = run_reference_step(on_one_rank(scaled.run), *options.families);
  LayoutCheckResult result{.world_size = scaled.world_size, .loss = reference.loss};
  std::mutex mutex;
  Coverage coverage;
  const auto run_rank = [&](Communicators& own) {
    const auto replaced = options.communicators ? options.communicators(own) : nullptr;
    Communicators& communicators = replaced ? *replaced : own;
    RunConfig run = scaled.run;
    if (options.settings) options.settings(own.rank(), run);
    std::ostream silent(nullptr);
    Trainer trainer = set_up(run, silent,
                             {.communicators = &communicators,
                              .cpus = {.count = kUnboundCpus},
                              .params_dtype = at::kDouble,
                              .families = options.families});
    if (options.trainer) options.trainer(trainer);
    StepComparer comparer(reference, trainer.plan.rank, *trainer.state.weights, coverage,
                          options.tolerance);
    const TrainStepResult step = run_observed_step(trainer, comparer);
    comparer.loss(step.loss());
    comparer.grad_norm(step.update.grad_norm);
    const RankFindings& found = comparer.findings();
    const std::lock_guard lock(mutex);
    result.differences.insert(result.differences.end(), found.differences.begin(),
                              found.differences.end());
    result.num_compared += found.num_compared;
    result.largest_relative = std::max(result.largest_relative, found.largest_relative);
    result.not_compared.insert(found.not_compared.begin(), found.not_compared.end());
  };
  run_rank_threads(scaled.world_size, run_rank, {.timeout = options.timeout});
  sort_by_time(result.differences, reference);
  result.gaps = coverage.gaps(reference, result.not_compared);
  result.seconds = monotonic_seconds() - start;
  return result;
}

std::string distinguishing_axes(const Mesh& mesh, const std::vector<std::int64_t>& ranks) {
  if (std::ssize(ranks) == mesh.world_size()) return "all ranks";
  std::string text;
  std::int64_t with_these = 1;
  for (const char* axis : {"tp", "cp", "dp", "pp"}) {
    std::set<std::int64_t> coordinates;
    for (const std::int64_t rank : ranks) coordinates.insert(mesh.coordinate(rank, axis));
    with_these *= std::ssize(coordinates);
    if (std::ssize(coordinates) == mesh.size(axis)) continue;
    text += (text.empty() ? "" : " and ") + std::string(axis);
    for (const char* separator = " "; const std::int64_t coordinate : coordinates)
      text += std::exchange(separator, ", ") + std::to_string(coordinate);
  }
  if (text.empty()) return std::to_string(ranks.size()) + " ranks";
  if (with_these > std::ssize(ranks))
    text += " (" + std::to_string(ranks.size()) + " of " + std::to_string(with_these) + " ranks)";
  return text;
}

}  // namespace megatron
