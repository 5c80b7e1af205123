#include "megatron/parallel/transport/parts.h"

#include <cstring>

namespace megatron {

std::int64_t row_elements(const at::Tensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.sizes().slice(1)) elements *= size;
  return elements;
}

std::int64_t row_bytes(const at::Tensor& tensor) {
  return row_elements(tensor) * static_cast<std::int64_t>(tensor.element_size());
}

Parts::Parts(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, std::int64_t size)
    : begins_(static_cast<std::size_t>(size) + 1) {
  const std::int64_t equal = static_cast<std::int64_t>(tensor.nbytes()) / size,
                     step = rows.empty() ? 0 : row_bytes(tensor);
  for (std::size_t member = 0; member + 1 < begins_.size(); ++member)
    begins_[member + 1] = begins_[member] + (rows.empty() ? equal : rows[member] * step);
}

std::int64_t Parts::largest() const {
  std::int64_t largest = 0;
  for (std::size_t i = 1; i < begins_.size(); ++i)
    largest = std::max(largest, begins_[i] - begins_[i - 1]);
  return largest;
}

void RowCountTable::write(const RowCounts& rows, std::byte* to) {
  const std::size_t bytes = rows.in.size() * sizeof(std::int64_t);
  std::memcpy(to, rows.in.data(), bytes);
  std::memcpy(to + bytes, rows.out.data(), bytes);
}

void RowCountTable::read(std::int64_t member, const std::byte* from) {
  RowCounts& rows = rows_[static_cast<std::size_t>(member)];
  rows.in.resize(rows_.size());
  rows.out.resize(rows_.size());
  const std::size_t bytes = rows_.size() * sizeof(std::int64_t);
  std::memcpy(rows.in.data(), from, bytes);
  std::memcpy(rows.out.data(), from + bytes, bytes);
}

std::int64_t RowCountTable::largest() const {
  std::int64_t largest = 0;
  for (const RowCounts& rows : rows_)
    largest = std::max(largest, *std::max_element(rows.in.begin(), rows.in.end()));
  return largest;
}

void RowCountTable::check(const CommCall& call, const std::vector<std::int64_t>& ranks) const {
  for (std::size_t from = 0; from < rows_.size(); ++from) {
    for (std::size_t to = 0; to < rows_.size(); ++to) {
      const std::int64_t sent = rows_[from].in[to], expected = rows_[to].out[from];
      if (sent != expected)
        throw CommError(describe_with_place(call) + ": rank " + std::to_string(ranks[from]) +
                        " sends " + std::to_string(sent) + " rows to rank " +
                        std::to_string(ranks[to]) + ", which expects " + std::to_string(expected));
    }
  }
}

}  // namespace megatron
