#include "megatron/training/layout_check/layout_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <ostream>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/training/loop/trainer.h"

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

constexpr std::array kColumns{CheckedKind::initial_weight, CheckedKind::activation,
                              CheckedKind::gradient, CheckedKind::updated_weight};

/// Returns the part of the model that an op or parameter belongs to.
std::string part_of(const std::string& name, const std::vector<ModelUnit>& units) {
  const ModelUnit* unit = find_unit(units, name);
  return (unit != nullptr ? *unit : ModelUnit{.path = name.substr(0, name.find('.'))}).title();
}

/// The largest relative difference of each kind in one part of the model.
using PartDifferences = std::map<CheckedKind, double>;

/// Returns the parts with differences, in the order of their first.
std::vector<std::pair<std::string, PartDifferences>> parts_with_differences(
    const LayoutCheckResult& result) {
  std::vector<std::pair<std::string, PartDifferences>> parts;
  for (const FoundDifference& one : result.differences) {
    const std::string part = part_of(one.name, result.units);
    auto found = std::ranges::find(parts, part, &std::pair<std::string, PartDifferences>::first);
    if (found == parts.end()) found = parts.insert(parts.end(), {part, {}});
    double& largest = found->second[one.kind];
    largest = std::max(largest, one.relative);
  }
  return parts;
}

std::string difference_table(const LayoutCheckResult& result) {
  std::string text = format("  %-20s", "largest difference");
  for (const CheckedKind kind : kColumns) text += format(" %16s", name_of(kind));
  text += '\n';
  for (const auto& [part, of_part] : parts_with_differences(result)) {
    text += format("  %-20s", part.c_str());
    const CheckedKind kind = of_part.begin()->first;
    if (kind == CheckedKind::loss || kind == CheckedKind::grad_norm) {
      text += format(" %16.2e\n", of_part.begin()->second);
      continue;
    }
    for (const CheckedKind kind : kColumns) {
      const auto found = of_part.find(kind);
      text += found == of_part.end() ? format(" %16s", "ok") : format(" %16.2e", found->second);
    }
    text += '\n';
  }
  return text;
}

Mesh mesh_of(const ScaledRun& scaled) {
  return {mesh_sizes(*scaled.run.options.settings.parallel), scaled.world_size};
}

/// Returns the ranks on which a value differs, ascending.
std::vector<std::int64_t> ranks_of(const LayoutCheckResult& result, const FoundDifference& value) {
  std::set<std::int64_t> ranks;
  for (const FoundDifference& one : result.differences)
    if (one.kind == value.kind && one.name == value.name) ranks.insert(one.rank);
  return {ranks.begin(), ranks.end()};
}

/// Returns " at [3, 0]".
std::string index_text(const Shape& index) {
  std::string text = " at [";
  for (const char* separator = ""; const std::int64_t i : index) {
    text += separator + std::to_string(i);
    separator = ", ";
  }
  return text + "]";
}

std::string place_text(const FoundDifference& one) {
  if (one.worst.at.empty()) return "";
  if (one.kind == CheckedKind::activation && one.worst.at.size() == 3)
    return format(" at row %lld of sample %lld, channel %lld",
                  static_cast<long long>(one.worst.at[0]), static_cast<long long>(one.worst.at[1]),
                  static_cast<long long>(one.worst.at[2]));
  return index_text(one.worst.at);
}

std::string first_difference(const ScaledRun& scaled, const LayoutCheckResult& result) {
  const FoundDifference& first = result.differences.front();
  return std::string("  the first to differ: ") + name_of(first.kind) + " " + first.name + " on " +
         distinguishing_axes(mesh_of(scaled), ranks_of(result, first)) +
         format("; rank %lld has %.9g", static_cast<long long>(first.rank), first.worst.found) +
         place_text(first) + format(", one rank has %.9g\n", first.worst.expected);
}

std::string gaps_text(const LayoutCheckResult& result) {
  constexpr std::size_t kMaxLines = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxLines, result.gaps.size()); ++i) {
    const Gap& gap = result.gaps[i];
    text += std::string("  on no rank: ") + name_of(gap.kind) + " " + gap.name +
            format(", %lld of %lld elements, the first", static_cast<long long>(gap.num_missing),
                   static_cast<long long>(gap.num_elements)) +
            index_text(gap.first) + "\n";
  }
  if (result.gaps.size() > kMaxLines)
    text += format("  and of %zu more tensors\n", result.gaps.size() - kMaxLines);
  return text;
}

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const char* axis : {"tp", "cp", "ep", "dp", "pp"}) {
    if (mesh.size(axis) > 1)
      text +=
          (text.empty() ? "" : ", ") + std::string(axis) + " " + std::to_string(mesh.size(axis));
  }
  return text;
}

std::string scaling_text(const ScaledRun& scaled) {
  std::string text;
  for (const ScaledSize& size : scaled.sizes)
    text +=
        (text.empty() ? "  scaled: " : ", ") + size.flag +
        format(" %lld to %lld", static_cast<long long>(size.from), static_cast<long long>(size.to));
  if (!text.empty()) text += '\n';
  for (const char* separator = "  left out: "; const std::string& what : scaled.left_out) {
    text += separator + what;
    separator = ", ";
  }
  return scaled.left_out.empty() ? text : text + '\n';
}

std::size_t num_faulty_ranks(const LayoutCheckResult& result) {
  std::set<std::int64_t> ranks;
  for (const FoundDifference& one : result.differences) ranks.insert(one.rank);
  return ranks.size();
}

std::string verdict(const LayoutCheckResult& result) {
  const auto ranks = static_cast<long long>(result.world_size);
  if (result.agrees())
    return format("right: %lld values on %lld ranks are those of one rank, within %.1e (%.1f s)\n",
                  static_cast<long long>(result.num_compared), ranks, result.largest_relative,
                  result.seconds);
  if (result.differences.empty())
    return format(
        "wrong: no rank has all of %zu tensors; the %lld values on %lld ranks agree (%.1f "
        "s)\n",
        result.gaps.size(), static_cast<long long>(result.num_compared), ranks, result.seconds);
  return format("wrong: %zu of %lld values differ, on %zu of %lld ranks (%.1f s)\n",
                result.differences.size(), static_cast<long long>(result.num_compared),
                num_faulty_ranks(result), ranks, result.seconds);
}

}  // namespace

LayoutCheckResult check_layout(const ScaledRun& scaled, const LayoutCheckOptions& options) {
  const double start = monotonic_seconds();
  const ReferenceStep reference = run_reference_step(on_one_rank(scaled.run), *options.families);
  LayoutCheckResult result{
      .world_size = scaled.world_size, .units = reference.units, .loss = reference.loss};
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

std::string check_report(const ScaledRun& scaled, const LayoutCheckResult& result) {
  const std::string mesh = mesh_text(mesh_of(scaled));
  std::string text = format("check of %lld ranks", static_cast<long long>(result.world_size)) +
                     (mesh.empty() ? "" : " (" + mesh + ")") + ", one step in float64\n" +
                     scaling_text(scaled);
  for (const char* separator = "  not compared: "; const std::string& name : result.not_compared) {
    text += separator + name;
    separator = ", ";
  }
  if (!result.not_compared.empty()) text += '\n';
  if (!result.differences.empty())
    text += difference_table(result) + first_difference(scaled, result);
  return text + gaps_text(result) + verdict(result);
}

std::string check_json(const ScaledRun& scaled, const LayoutCheckResult& result) {
  JsonText json{{"agrees", result.agrees()},
                {"world_size", result.world_size},
                {"num_compared", result.num_compared},
                {"num_different", result.differences.size()},
                {"largest_relative_of_equal", result.largest_relative},
                {"loss", result.loss},
                {"seconds", result.seconds}};
  json["scaled"] = JsonText::object();
  for (const ScaledSize& size : scaled.sizes)
    json["scaled"][size.flag] = {{"from", size.from}, {"to", size.to}};
  json["left_out"] = scaled.left_out;
  json["not_compared"] = std::vector(result.not_compared.begin(), result.not_compared.end());
  json["differences"] = JsonText::array();
  for (const FoundDifference& one : result.differences)
    json["differences"].push_back({{"kind", name_of(one.kind)},
                                   {"name", one.name},
                                   {"rank", one.rank},
                                   {"relative", one.relative},
                                   {"at", one.worst.at},
                                   {"found", one.worst.found},
                                   {"expected", one.worst.expected}});
  json["on_no_rank"] = JsonText::array();
  for (const Gap& gap : result.gaps)
    json["on_no_rank"].push_back({{"kind", name_of(gap.kind)},
                                  {"name", gap.name},
                                  {"num_missing", gap.num_missing},
                                  {"num_elements", gap.num_elements},
                                  {"first", gap.first}});
  return json.dump() + "\n";
}

}  // namespace megatron
