// Reads columns of text of Parquet files with Arrow's library, as JSON lines.
#include "megatron/datasets/parquet/parquet_rows.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace megatron {
namespace {

constexpr std::int64_t kRowsAtOnce = 1024;

/// Appends a JSON string. Bytes that are no UTF-8 stay, as in JSON lines.
void append_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_value(std::string& out, const arrow::Array& array, std::int64_t row);

/// Appends elements `begin` … `end` − 1 as a JSON array.
void append_list(std::string& out, const arrow::Array& values, std::int64_t begin,
                 std::int64_t end) {
  out += '[';
  for (std::int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ',';
    append_value(out, values, i);
  }
  out += ']';
}

void append_value(std::string& out, const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return append_string(out, static_cast<const arrow::BinaryArray&>(array).GetView(row));
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return append_string(out, static_cast<const arrow::LargeBinaryArray&>(array).GetView(row));
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return append_string(out, static_cast<const arrow::BinaryViewArray&>(array).GetView(row));
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return append_value(out, *dictionary.dictionary(), dictionary.GetValueIndex(row));
    }
    case arrow::Type::LIST: {
      const auto& list = static_cast<const arrow::ListArray&>(array);
      return append_list(out, *list.values(), list.value_offset(row), list.value_offset(row + 1));
    }
    case arrow::Type::LARGE_LIST: {
      const auto& list = static_cast<const arrow::LargeListArray&>(array);
      return append_list(out, *list.values(), list.value_offset(row), list.value_offset(row + 1));
    }
    default:
      throw std::runtime_error("a column of type " + array.type()->ToString() + " is no text");
  }
}

template <class T>
T value_of(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).ValueUnsafe();
}

class ArrowRows : public ParquetRows {
 public:
  ArrowRows(const char* path, const std::vector<std::string>& columns)
      : file_(value_of(arrow::io::ReadableFile::Open(path))),
        reader_(value_of(parquet::arrow::OpenFile(file_, arrow::default_memory_pool()))),
        file_bytes_(static_cast<std::uint64_t>(value_of(file_->GetSize()))) {
    const std::shared_ptr<parquet::FileMetaData> metadata = reader_->parquet_reader()->metadata();
    rows_ = metadata->num_rows();
    reader_->set_batch_size(kRowsAtOnce);
    std::vector<int> row_groups(static_cast<std::size_t>(metadata->num_row_groups()));
    std::iota(row_groups.begin(), row_groups.end(), 0);
    batches_ =
        value_of(reader_->GetRecordBatchReader(row_groups, leaves(*metadata->schema(), columns)));
    const std::shared_ptr<arrow::Schema> schema = batches_->schema();
    for (int column = 0; column < schema->num_fields(); ++column) {
      std::string name;
      append_string(name, schema->field(column)->name());
      names_.push_back((column == 0 ? "{" : ",") + name + ":");
    }
  }

  bool next(std::string& lines, std::string& error) override try {
    std::shared_ptr<arrow::RecordBatch> batch;
    const arrow::Status status = batches_->ReadNext(&batch);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    if (!batch) return false;
    for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
      for (int column = 0; column < batch->num_columns(); ++column) {
        lines += names_[static_cast<std::size_t>(column)];
        append_value(lines, *batch->column(column), row);
      }
      lines += "}\n";
    }
    rows_read_ += batch->num_rows();
    return true;
  } catch (const std::exception& exception) {
    error = exception.what();
    return false;
  }

  std::uint64_t bytes_read() const override {
    if (rows_read_ >= rows_) return file_bytes_;
    return static_cast<std::uint64_t>(static_cast<double>(file_bytes_) *
                                      static_cast<double>(rows_read_) / static_cast<double>(rows_));
  }

 private:
  /// Returns the leaf columns of the chosen columns. Throws std::runtime_error if one is absent.
  static std::vector<int> leaves(const parquet::SchemaDescriptor& schema,
                                 const std::vector<std::string>& columns) {
    std::vector<int> chosen;
    for (const std::string& name : columns) {
      const std::size_t before = chosen.size();
      std::string known;
      for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
        const std::string& root = schema.GetColumnRoot(leaf)->name();
        if (root == name) chosen.push_back(leaf);
        known += (leaf == 0 ? "" : ", ") + root;
      }
      if (chosen.size() == before)
        throw std::runtime_error("no column '" + name + "'; there are " + known);
    }
    return chosen;
  }

  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::vector<std::string> names_;  ///< what stands before the value of each column
  std::uint64_t file_bytes_;
  std::int64_t rows_ = 0, rows_read_ = 0;
};

}  // namespace
}  // namespace megatron

extern "C" megatron::ParquetRows* megatron_open_parquet(const char* path,
                                                        const char* const* columns,
                                                        std::size_t num_columns,
                                                        std::string& error) try {
  return new megatron::ArrowRows(path, {columns, columns + num_columns});
} catch (const std::exception& exception) {
  error = exception.what();
  return nullptr;
}
