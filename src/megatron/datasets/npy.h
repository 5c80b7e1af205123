// Reads and writes the subset of NumPy's .npy format (version 1.0, C order) that index caches use:
// small integer arrays. Files are memory-mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "megatron/base/files.h"

namespace megatron {

enum class NpyType { int16, int32, int64, uint32 };

inline NpyType npy_type(const std::int16_t*) { return NpyType::int16; }
inline NpyType npy_type(const std::int32_t*) { return NpyType::int32; }
inline NpyType npy_type(const std::int64_t*) { return NpyType::int64; }
inline NpyType npy_type(const std::uint32_t*) { return NpyType::uint32; }

/// An immutable integer array of one or two dimensions, in memory or mapped from a file. Copies
/// share the values.
class NpyArray {
 public:
  NpyArray() = default;
  /// Takes ownership of `values`, a vector or a LargeArray, as an array of `columns` columns (0:
  /// one-dimensional).
  template <class Values>
  explicit NpyArray(Values values, std::int64_t columns = 0)
      : type_(npy_type(values.data())), size_(static_cast<std::int64_t>(values.size())) {
    if (columns == 0) shape_ = {size_};
    if (columns != 0) shape_ = {size_ / columns, columns};
    const auto owned = std::make_shared<const Values>(std::move(values));
    data_ = reinterpret_cast<const std::byte*>(owned->data());
    owner_ = owned;
  }

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
  NpyType type_ = NpyType::int32;
  std::vector<std::int64_t> shape_ = {0};
  std::int64_t size_ = 0;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace megatron
