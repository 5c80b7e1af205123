// What lib/libmegatron_arrow.so gives: the rows of a Parquet file as JSON lines. The plugin links
// Arrow's library; everything else is built without knowing it. Nothing is thrown across.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace megatron {

/// Not thread-safe.
class ParquetRows {
 public:
  virtual ~ParquetRows() = default;
  /// Appends the next rows, one JSON object with the chosen columns a line. Returns false at the
  /// end and on an error, which it then describes.
  virtual bool next(std::string& lines, std::string& error) = 0;
  /// Returns which part of the file was read, in bytes of the whole.
  virtual std::uint64_t bytes_read() const = 0;
};

/// Opens a file and chooses columns of text or of lists of text; null on an error, which it then
/// describes. The caller deletes the result.
using OpenParquet = ParquetRows*(const char* path, const char* const* columns,
                                 std::size_t num_columns, std::string& error);
inline constexpr const char* kOpenParquet = "megatron_open_parquet";

}  // namespace megatron
