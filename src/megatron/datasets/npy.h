// Reads and writes the subset of NumPy's .npy format (version 1.0, C order) that index caches use:
// small integer arrays. Files are memory-mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/large_array.h"

namespace megatron {

enum class NpyType { int16, int32, int64, uint32 };

/// An immutable integer array of one or two dimensions, in memory or mapped from a file. Copies
/// share the values.
class NpyArray {
 public:
  NpyArray() = default;
  /// Takes ownership of `values` as an array of `columns` columns (0: one-dimensional).
  explicit NpyArray(std::vector<std::int16_t> values, std::int64_t columns = 0);
  explicit NpyArray(std::vector<std::int32_t> values, std::int64_t columns = 0);
  explicit NpyArray(std::vector<std::int64_t> values, std::int64_t columns = 0);
  explicit NpyArray(std::vector<std::uint32_t> values, std::int64_t columns = 0);

  explicit NpyArray(LargeArray<std::int32_t> values, std::int64_t columns = 0);
  explicit NpyArray(LargeArray<std::int64_t> values, std::int64_t columns = 0);
  explicit NpyArray(LargeArray<std::uint32_t> values, std::int64_t columns = 0);

  /// Maps a .npy file. A UserError names the file and the invalid field.
  static NpyArray load(const fs::path& path);
  /// Writes the same bytes as numpy.save, and fsyncs them.
  void save(const fs::path& path) const;

  NpyType type() const { return type_; }
  /// Returns one or two extents.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Returns the number of elements.
  std::int64_t size() const { return size_; }
  /// Returns element `i` of the flattened array; 0 ≤ i < size().
  std::int64_t at(std::int64_t i) const;

 private:
  template <class Values>
  void take(Values values, std::int64_t columns, NpyType type);

  NpyType type_ = NpyType::int32;
  std::vector<std::int64_t> shape_ = {0};
  std::int64_t size_ = 0;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace megatron
