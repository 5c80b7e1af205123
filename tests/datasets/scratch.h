// Helpers of the dataset tests: a temporary folder, and corpora written to it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/datasets/indexed_dataset_builder.h"

namespace megatron::test {

/// An empty folder that the destructor removes.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "megatron_test_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_corpus(const std::string& prefix,
                         const std::vector<std::vector<std::int32_t>>& documents,
                         TokenDtype type = TokenDtype::uint16) {
  IndexedDatasetBuilder builder(prefix, type);
  for (const auto& document : documents) {
    const std::vector<std::int32_t> lengths = {static_cast<std::int32_t>(document.size())};
    builder.add_document(document, lengths);
  }
  builder.finalize();
}

/// 40 documents. Document i has 1 + i² mod 13 tokens (1 to 13); its token j is
/// 1 + (7i + j) mod 50.
inline std::vector<std::vector<std::int32_t>> small_corpus() {
  std::vector<std::vector<std::int32_t>> documents;
  for (int i = 0; i < 40; ++i) {
    auto& document = documents.emplace_back();
    for (int j = 0; j < 1 + (i * i) % 13; ++j) document.push_back(1 + (7 * i + j) % 50);
  }
  return documents;
}

inline std::string read_text_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_text_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// Returns the text of the UserError that `action` throws; empty when it throws none.
inline std::string user_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace megatron::test
