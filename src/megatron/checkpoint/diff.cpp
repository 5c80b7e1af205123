// `megatron checkpoint diff`: compares the weights of two sources.
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>

#include <set>

#include "megatron/base/format.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/weight_reader.h"

namespace megatron {
namespace {

double largest_difference(const at::Tensor& left, const at::Tensor& right) {
  if (left.numel() == 0) return 0;
  const at::Tensor a = left.to(at::kDouble), b = right.to(at::kDouble);
  const at::Tensor distance = at::abs(at::sub(a, b));
  const at::Tensor same = at::eq(a, b).logical_or(at::isnan(a).logical_and(at::isnan(b)));
  return at::max(distance.masked_fill(same, 0)).item<double>();
}

WeightDifference compare(const std::string& name, WeightReader& left, WeightReader& right) {
  const WeightInfo *a = left.find(name), *b = right.find(name);
  if (a == nullptr || b == nullptr)
    return {name, a == nullptr ? "only in the second" : "only in the first"};
  if (a->shape != b->shape)
    return {name, "shapes " + shape_text(a->shape) + " and " + shape_text(b->shape)};
  return {name, "", largest_difference(left.read(name), right.read(name))};
}

}  // namespace

std::vector<WeightDifference> diff_checkpoints(const std::filesystem::path& left,
                                               const std::filesystem::path& right) {
  const auto a = open_weights(require_checkpoint(left)),
             b = open_weights(require_checkpoint(right));
  std::set<std::string> names;
  for (const WeightReader* reader : {a.get(), b.get()}) {
    for (const WeightInfo& info : reader->weights()) names.insert(info.name);
    for (const WeightInfo& info : reader->states()) names.insert(info.name);
  }
  std::vector<WeightDifference> differences;
  for (const std::string& name : names) differences.push_back(compare(name, *a, *b));
  return differences;
}

std::string difference_text(const std::vector<WeightDifference>& differences) {
  std::string text;
  std::size_t count = 0;
  double largest = 0;
  for (const WeightDifference& difference : differences) {
    if (difference.remark.empty() && difference.largest == 0) continue;
    ++count;
    text += difference.name + "  " +
            (difference.remark.empty() ? format("%.6e", difference.largest) : difference.remark) +
            "\n";
    if (!(difference.largest <= largest)) largest = difference.largest;
  }
  return text + format("%zu of %zu tensors differ; largest difference %.6e\n", count,
                       differences.size(), largest);
}

}  // namespace megatron
