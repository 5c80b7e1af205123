#include "megatron/datasets/parquet/parquet_stream.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/datasets/parquet/parquet_rows.h"

namespace megatron {
namespace {

/// Returns the function of lib/libmegatron_arrow.so beside the program's folder.
OpenParquet* load_plugin(const fs::path& file) {
  const fs::path path = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" /
                        "libmegatron_arrow.so";
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    throw UserError(
        {file.string() + ": Parquet files are read by Arrow's library, through " + path.string(),
         reason != nullptr ? reason : "it cannot be loaded",
         "build it with `make build ARROW=1`, or convert the file to JSON lines"});
  }
  void* symbol = ::dlsym(library, kOpenParquet);
  if (symbol == nullptr)
    throw UserError({path.string(), "has another version than this program",
                     "build it again with `make build ARROW=1`"});
  return reinterpret_cast<OpenParquet*>(symbol);
}

class ParquetStream : public TextStream {
 public:
  ParquetStream(fs::path path, std::unique_ptr<ParquetRows> rows)
      : path_(std::move(path)), rows_(std::move(rows)) {}

  std::size_t read(char* data, std::size_t size) override {
    while (taken_ == lines_.size()) {
      lines_.clear();
      taken_ = 0;
      std::string error;
      if (rows_->next(lines_, error)) continue;
      if (error.empty()) return 0;
      throw UserError({path_.string() + ": " + error, "", "copy or download the file again"});
    }
    const std::size_t count = std::min(size, lines_.size() - taken_);
    std::memcpy(data, lines_.data() + taken_, count);
    taken_ += count;
    return count;
  }

  std::uint64_t bytes_read() const override { return rows_->bytes_read(); }

 private:
  fs::path path_;
  std::unique_ptr<ParquetRows> rows_;
  std::string lines_;
  std::size_t taken_ = 0;  ///< bytes of lines_ that were read
};

}  // namespace

std::unique_ptr<TextStream> open_parquet(const fs::path& path,
                                         const std::vector<std::string>& columns) {
  OpenParquet* open = load_plugin(path);
  std::vector<const char*> names;
  for (const std::string& column : columns) names.push_back(column.c_str());
  std::string error;
  std::unique_ptr<ParquetRows> rows(open(path.c_str(), names.data(), names.size(), error));
  if (!rows)
    throw UserError({path.string() + ": " + error, "",
                     "name the columns that hold the text with --json-keys, or copy the file "
                     "again"});
  return std::make_unique<ParquetStream>(path, std::move(rows));
}

}  // namespace megatron
