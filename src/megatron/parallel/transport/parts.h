// The parts of a tensor that belong to the ranks of a group, and the check that the ranks agree on
// the parts of an uneven all-to-all.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "megatron/parallel/comm.h"

namespace megatron {

/// Begin and size of each rank's part, in bytes. The parts lie in rank order along dimension 0.
class Parts {
 public:
  /// Divides a tensor into `size` parts of rows[i] rows, or equal parts when `rows` is empty.
  Parts(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, std::int64_t size);

  std::int64_t begin(std::int64_t member) const {
    return begins_[static_cast<std::size_t>(member)];
  }
  std::int64_t bytes(std::int64_t member) const { return begin(member + 1) - begin(member); }
  std::int64_t total() const { return begins_.back(); }
  std::int64_t largest() const;

 private:
  std::vector<std::int64_t> begins_;  ///< one more than parts
};

/// Returns the memory of a tensor.
inline std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}
/// Returns the size of a tensor, or 0 if it is undefined.
inline std::int64_t num_bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}
/// Returns the elements and the bytes of one row of a tensor.
std::int64_t row_elements(const at::Tensor& tensor);
std::int64_t row_bytes(const at::Tensor& tensor);

/// The row counts of every rank of an uneven all-to-all.
class RowCountTable {
 public:
  /// Bytes that one rank contributes.
  static std::int64_t bytes(std::int64_t size) {
    return 2 * size * static_cast<std::int64_t>(sizeof(std::int64_t));
  }
  /// Writes this rank's contribution, bytes() long.
  static void write(const RowCounts& rows, std::byte* to);

  explicit RowCountTable(std::int64_t size) : rows_(static_cast<std::size_t>(size)) {}
  void read(std::int64_t member, const std::byte* from);
  /// Returns the largest number of rows that one rank sends to another.
  std::int64_t largest() const;
  /// Throws CommError for the first pair that disagrees, on every rank: "rank 3 sends 5 rows to
  /// rank 1, which expects 4". `ranks` are the world ranks of the group.
  void check(const CommCall& call, const std::vector<std::int64_t>& ranks) const;

 private:
  std::vector<RowCounts> rows_;
};

}  // namespace megatron
