// Helpers of the dataset tests: text files and corpora.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "megatron/datasets/indexed_dataset_builder.h"

namespace megatron::test {

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

}  // namespace megatron::test
