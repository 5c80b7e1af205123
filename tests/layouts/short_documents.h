// A corpus of short documents, for layouts that pack several of them in a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "layouts/layout.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "support/temporary_folder.h"

namespace megatron::layouts {

/// Returns the prefix of a corpus of 400 documents of 1 to 40 tokens.
inline const std::string& short_documents() {
  static const TemporaryFolder folder;
  static const std::string prefix = [] {
    IndexedDatasetBuilder builder((folder / "documents").string(), TokenDtype::int32);
    for (std::int32_t document = 0; document < 400; ++document) {
      const std::int32_t length = 1 + document * 7 % 40;
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i < length; ++i) tokens.push_back((document * 31 + i * i) % 60);
      builder.add_document(tokens, std::vector{length});
    }
    builder.finalize();
    return (folder / "documents").string();
  }();
  return prefix;
}

/// Reads short documents in place of mock data if the flags pack documents.
inline void use_short_documents(Flags& flags) {
  if (std::ranges::find(flags, "--dataloader-inter-document-masking") == flags.end()) return;
  std::erase(flags, "--mock-data");
  flags.insert(flags.end(), {"--data-path", short_documents(), "--split", "100,0,0"});
}

}  // namespace megatron::layouts
