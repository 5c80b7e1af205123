#include "megatron/training/resilience/diagnosis/explanation.h"

#include <algorithm>

#include "megatron/base/format.h"
#include "megatron/checkpoint/slice_math.h"

namespace megatron {
namespace {

/// `ordinals` may name a sample once for each of its packed sequences.
std::string listed(std::vector<std::int64_t> ordinals) {
  ordinals.erase(std::ranges::unique(ordinals).begin(), ordinals.end());
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < ordinals.size() && i < kMost; ++i)
    text += (i ? ", " : "") + std::to_string(ordinals[i]);
  if (ordinals.size() > kMost) text += format(", … %zu in all", ordinals.size());
  return (ordinals.size() == 1 ? "sample " : "samples ") + text;
}

std::int64_t ordinal_of(const Microbatch& microbatch, std::int64_t row) {
  return sample_of_ordinal(microbatch.sample_ordinals[row].item<std::int64_t>());
}

std::string sample_line(const FirstBadOp& bad, const Microbatch& microbatch) {
  if (bad.samples.empty()) return {};
  std::vector<std::int64_t> ordinals;
  for (const std::int64_t row : bad.samples) ordinals.push_back(ordinal_of(microbatch, row));
  return "\n  in " + listed(ordinals) + " of the training order";
}

std::string input_text(const FirstBadOp& bad) {
  if (bad.pass == FirstBadOp::Pass::backward)
    return bad.before ? "\n  its incoming gradient is " + describe(*bad.before) : "";
  if (bad.is_first_of_stage)
    return "\n  its input came from the previous stage, where every output was finite";
  if (!bad.before) return "\n  it is the first op: its inputs are token ids and positions";
  return "\n  before it, " + *bad.input + " is " + describe(*bad.before);
}

/// Returns the name of a piece's parameter, and its range when this rank keeps only a part of it.
std::string part_text(const ParameterPiece& piece) {
  const std::string& name = piece.parameter->name();
  if (piece.count == num_elements(piece.parameter->local_shape())) return name;
  return name + " (elements " + std::to_string(piece.first) + " to " +
         std::to_string(piece.first + piece.count - 1) + " on this rank)";
}

/// Returns the statistics of a piece, in the shape of its parameter if it is whole.
TensorStatistics statistics_of(const ParameterPiece& piece, const at::Tensor& flat) {
  const Shape shape = piece.parameter->local_shape();
  return tensor_statistics(piece.count == num_elements(shape) ? flat.view(shape) : flat);
}

/// Returns one line per parameter of the op. Finite parameters show their magnitude, because large
/// values make a GEMM overflow.
std::string parameter_lines(const FirstBadOp& bad, const ParamStore& weights) {
  std::string text;
  const std::vector<const Parameter*> parameters = parameters_of(weights, bad.op);
  for (const ParameterPiece& piece : weights.kept_pieces()) {
    if (std::ranges::find(parameters, piece.parameter) == parameters.end()) continue;
    const TensorStatistics statistics = statistics_of(piece, weights.read_kept(piece));
    text += "\n  its parameter " + part_text(piece) + (statistics.finite() ? " is " : " holds ") +
            describe(statistics);
  }
  return text;
}

/// Returns a line that names the model's first non-finite weight, or says that all are finite.
std::string first_bad_weight(const ParamStore& weights) {
  for (const ParameterPiece& piece : weights.kept_pieces()) {
    const TensorStatistics statistics = statistics_of(piece, weights.read_kept(piece));
    if (!statistics.finite())
      return "\n  the first weight that is not finite: " + part_text(piece) + " holds " +
             describe(statistics);
  }
  return "\n  every weight is finite";
}

}  // namespace

std::string sample_list(const Microbatch& microbatch) {
  std::vector<std::int64_t> ordinals;
  for (std::int64_t row = 0; row < microbatch.sample_ordinals.size(0); ++row)
    ordinals.push_back(ordinal_of(microbatch, row));
  return listed(ordinals) + " of the training order";
}

std::string explain(const OpTrace& trace, const ParamStore& weights, const Microbatch& microbatch) {
  std::string text = first_bad_weight(weights);
  if (!trace.first_bad)
    return text + "\n  a rerun with checks gave only finite values: the fault was not reproduced";
  const FirstBadOp& bad = *trace.first_bad;
  text += "\n  first op at fault: " + bad.op + ", " +
          (bad.pass == FirstBadOp::Pass::forward ? "forward" : "backward");
  if (!bad.detail.empty()) text += " (" + bad.detail + ")";
  text += "\n  its " + bad.what + " " + shape_text(bad.statistics.shape) + ": " +
          describe(bad.statistics);
  return text + sample_line(bad, microbatch) + input_text(bad) + parameter_lines(bad, weights);
}

}  // namespace megatron
