#include "megatron/training/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

std::vector<double> reduced(const Meeting& meeting, std::vector<double> numbers, ReduceOp op, const char* what) {
  if (meeting.axis.size == 1 || numbers.empty()) return numbers;
  const auto count = static_cast<std::int64_t>(numbers.size());
  const at::Tensor tensor = at::from_blob(numbers.data(), {count}, at::kDouble).to(meeting.device, /*non_blocking=*/false, /*copy=*/true);
  meeting.axis.comm->all_reduce(tensor, what, op);
  const at::Tensor host = tensor.cpu();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + count};
}

/// The tensors of all ranks, [size, n] on the host.
at::Tensor gathered_tensor(const Meeting& meeting, const at::Tensor& mine, const char* what) {
  const at::Tensor all = at::empty({meeting.axis.size, mine.numel()}, mine.options().device(meeting.device));
  meeting.axis.comm->all_gather(all, mine.view({1, -1}).to(meeting.device), what);
  return all.cpu();
}

}  // namespace

std::vector<double> largest(const Meeting& meeting, std::vector<double> numbers, const char* what) {
  return reduced(meeting, std::move(numbers), ReduceOp::max, what);
}

std::vector<double> sums(const Meeting& meeting, std::vector<double> numbers, const char* what) {
  return reduced(meeting, std::move(numbers), ReduceOp::sum, what);
}

std::vector<std::vector<double>> gathered(const Meeting& meeting, const std::vector<double>& numbers, const char* what) {
  if (meeting.axis.size == 1 || numbers.empty()) return std::vector(static_cast<std::size_t>(meeting.axis.size), numbers);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const at::Tensor mine = at::empty({count}, at::kDouble);
  std::ranges::copy(numbers, mine.mutable_data_ptr<double>());
  const at::Tensor all = gathered_tensor(meeting, mine, what);
  std::vector<std::vector<double>> result;
  for (std::int64_t rank = 0; rank < meeting.axis.size; ++rank) {
    const double* first = all.const_data_ptr<double>() + rank * count;
    result.emplace_back(first, first + count);
  }
  return result;
}

std::vector<std::string> gathered_texts(const Meeting& meeting, const std::string& text, const char* what) {
  if (meeting.axis.size == 1) return {text};
  const double longest = largest(meeting, {static_cast<double>(text.size())}, what).front();
  const auto width = static_cast<std::int64_t>(longest) + 1;  // texts have no zero bytes, so the first one ends a text
  const at::Tensor mine = at::zeros({width}, at::kByte);
  std::ranges::copy(text, mine.mutable_data_ptr<std::uint8_t>());
  const at::Tensor all = gathered_tensor(meeting, mine, what);
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < meeting.axis.size; ++rank)
    texts.emplace_back(reinterpret_cast<const char*>(all.const_data_ptr<std::uint8_t>() + rank * width));
  return texts;
}

}  // namespace megatron
