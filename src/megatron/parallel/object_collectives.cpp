#include "megatron/parallel/object_collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "megatron/base/error.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/comm.h"

namespace megatron {
namespace {

/// Returns a tensor with a copy of the numbers on the group's device.
at::Tensor to_tensor(const ObjectGroup& group, std::vector<double>& numbers) {
  return at::from_blob(numbers.data(), {static_cast<std::int64_t>(numbers.size())}, at::kDouble)
      .to(group.device, /*non_blocking=*/false, /*copy=*/true);
}

std::vector<double> to_numbers(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

std::vector<double> all_reduce_numbers(const ObjectGroup& group, std::vector<double> numbers,
                                       ReduceOp op, const char* what) {
  if (group.axis.size == 1 || numbers.empty()) return numbers;
  const at::Tensor tensor = to_tensor(group, numbers);
  all_reduce_(group.axis, tensor, what, op);
  return to_numbers(tensor);
}

template <class Number>
std::vector<std::vector<Number>> all_gather_vectors(const ObjectGroup& group,
                                                    const std::vector<Number>& numbers,
                                                    const char* what) {
  if (group.axis.size == 1 || numbers.empty())
    return std::vector(static_cast<std::size_t>(group.axis.size), numbers);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const at::Tensor mine = at::empty({count}, c10::CppTypeToScalarType<Number>::value);
  std::ranges::copy(numbers, mine.mutable_data_ptr<Number>());
  const at::Tensor all = all_gather(group.axis, mine.view({1, -1}).to(group.device), what).cpu();
  std::vector<std::vector<Number>> result;
  for (std::int64_t rank = 0; rank < group.axis.size; ++rank) {
    const Number* first = all.const_data_ptr<Number>() + rank * count;
    result.emplace_back(first, first + count);
  }
  return result;
}

at::Tensor bytes_of(const ObjectGroup& group, const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes.to(group.device);
}

/// Returns the length of the text of each rank. Collective over the axis.
std::vector<std::int64_t> gather_lengths(const ObjectGroup& group, const std::string& text) {
  MEGATRON_CHECK(group.axis.comm != nullptr, "the axis ", group.axis.name, " has no communicator");
  std::vector<std::int64_t> lengths;
  for (const auto& length : all_gather_vectors(
           group, std::vector{static_cast<std::int64_t>(text.size())}, "sizes of texts"))
    lengths.push_back(length.front());
  return lengths;
}

/// Cuts the bytes of a tensor into texts of these lengths.
std::vector<std::string> cut(const at::Tensor& bytes, const std::vector<std::int64_t>& lengths) {
  const at::Tensor here = bytes.cpu();
  const char* at = reinterpret_cast<const char*>(here.const_data_ptr<std::uint8_t>());
  std::vector<std::string> texts;
  for (const std::int64_t length : lengths) {
    texts.emplace_back(at, static_cast<std::size_t>(length));
    at += length;
  }
  return texts;
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

std::vector<double> broadcast_numbers(const ObjectGroup& group, std::vector<double> numbers,
                                      const char* what) {
  if (group.axis.size == 1 || numbers.empty()) return numbers;
  const at::Tensor tensor = to_tensor(group, numbers);
  broadcast_(group.axis, tensor, 0, what);
  return to_numbers(tensor);
}

std::vector<std::vector<double>> all_gather_numbers(const ObjectGroup& group,
                                                    const std::vector<double>& numbers,
                                                    const char* what) {
  return all_gather_vectors(group, numbers, what);
}

std::vector<std::vector<std::int64_t>> all_gather_numbers(const ObjectGroup& group,
                                                          const std::vector<std::int64_t>& numbers,
                                                          const char* what) {
  return all_gather_vectors(group, numbers, what);
}

std::vector<std::string> all_gather_strings(const ObjectGroup& group, const std::string& text) {
  const Axis& axis = group.axis;
  if (axis.size == 1) return {text};
  const std::vector<std::int64_t> lengths = gather_lengths(group, text);
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const at::Tensor all = at::empty({total}, at::TensorOptions(at::kByte).device(group.device));
  if (total > 0) axis.comm->all_gather(all, bytes_of(group, text), "texts", lengths);
  return cut(all, lengths);
}

std::vector<std::string> gather_strings(const ObjectGroup& group, const std::string& text) {
  const Axis& axis = group.axis;
  if (axis.size == 1) return {text};
  const std::vector<std::int64_t> lengths = gather_lengths(group, text);
  if (axis.rank != 0) {
    if (!text.empty()) axis.comm->send(bytes_of(group, text), 0, "text");
    return {};
  }
  std::vector<std::string> texts{text};
  for (std::int64_t rank = 1; rank < axis.size; ++rank) {
    const std::int64_t length = lengths[static_cast<std::size_t>(rank)];
    const at::Tensor one = at::empty({length}, at::TensorOptions(at::kByte).device(group.device));
    if (length > 0) axis.comm->recv(one, rank, "text");
    texts.push_back(cut(one, {length}).front());
  }
  return texts;
}

std::vector<std::string> broadcast_strings(const ObjectGroup& group,
                                           const std::vector<std::string>& texts) {
  if (group.axis.size == 1) return texts;
  std::string packed;  // "<size>:<text>" for each text; empty on ranks other than 0
  if (group.axis.rank == 0) {
    for (const std::string& text : texts) packed += std::to_string(text.size()) + ':' + text;
  }
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(packed.size()),
                                   at::TensorOptions(at::kLong).device(group.device));
  broadcast_(group.axis, size, 0, "size of texts");
  packed.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
  if (packed.empty()) return {};
  const at::Tensor bytes = bytes_of(group, packed);
  broadcast_(group.axis, bytes, 0, "texts");
  const std::string all = cut(bytes, {bytes.numel()}).front();
  std::vector<std::string> shared;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t colon = all.find(':', at), size = std::stoull(all.substr(at, colon - at));
    shared.push_back(all.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  return shared;
}

std::vector<std::string> all_gather_unique_names(const ObjectGroup& group,
                                                 const std::vector<std::string>& names) {
  std::string mine;
  for (const std::string& name : names) mine += name + '\n';
  std::set<std::string> all;
  for (const std::string& text : all_gather_strings(group, mine)) {
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      all.insert(text.substr(begin, end - begin));
  }
  return {all.begin(), all.end()};
}

}  // namespace megatron
