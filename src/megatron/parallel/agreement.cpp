#include "megatron/parallel/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

std::vector<double> all_reduce_numbers(const ObjectGroup& group, std::vector<double> numbers,
                                       ReduceOp op, const char* what) {
  if (group.axis.size == 1 || numbers.empty()) return numbers;
  const auto count = static_cast<std::int64_t>(numbers.size());
  const at::Tensor tensor = at::from_blob(numbers.data(), {count}, at::kDouble)
                                .to(group.device, /*non_blocking=*/false, /*copy=*/true);
  all_reduce_(group.axis, tensor, what, op);
  const at::Tensor host = tensor.cpu();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + count};
}

}  // namespace

std::vector<double> all_reduce_max(const ObjectGroup& group, std::vector<double> numbers,
                                   const char* what) {
  return all_reduce_numbers(group, std::move(numbers), ReduceOp::max, what);
}

std::vector<double> all_reduce_sum(const ObjectGroup& group, std::vector<double> numbers,
                                   const char* what) {
  return all_reduce_numbers(group, std::move(numbers), ReduceOp::sum, what);
}

std::vector<std::vector<double>> all_gather_numbers(const ObjectGroup& group,
                                                    const std::vector<double>& numbers,
                                                    const char* what) {
  if (group.axis.size == 1 || numbers.empty())
    return std::vector(static_cast<std::size_t>(group.axis.size), numbers);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const at::Tensor mine = at::empty({count}, at::kDouble);
  std::ranges::copy(numbers, mine.mutable_data_ptr<double>());
  const at::Tensor all = all_gather(group.axis, mine.view({1, -1}).to(group.device), what).cpu();
  std::vector<std::vector<double>> result;
  for (std::int64_t rank = 0; rank < group.axis.size; ++rank) {
    const double* first = all.const_data_ptr<double>() + rank * count;
    result.emplace_back(first, first + count);
  }
  return result;
}

}  // namespace megatron
