// Text → indexed datasets: what `preprocess-data` does. Files are read, tokenized by threads and
// written in order with bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/text_chunks.h"

namespace megatron {

struct PreprocessOptions {
  std::vector<std::string>
      inputs;  ///< paths or globs of JSON lines, or of text when they end in .txt; .gz and .zst too
  std::vector<std::string> json_keys = {"text"};  ///< one dataset is written for each
  std::string output_prefix;                      ///< datasets are `{output_prefix}_{key}_document`
  DocumentKind text_documents =
      DocumentKind::paragraph;  ///< what a document of a .txt file is; its key is "text"
  bool append_eod = false;
  std::int64_t eod = -1;
  std::int64_t vocab_size = 0;       ///< ids must be below it; it decides the element type
  std::int64_t workers = 1;          ///< threads that tokenize
  std::int64_t log_interval = 1000;  ///< documents between lines of progress
  /// The tokenizer reads any bytes: texts of .txt files are not made valid UTF-8.
  bool accepts_invalid_utf8 = false;
  std::ostream* log = nullptr;
  bool log_is_terminal = false;  ///< one line that is rewritten, with the time left
};

/// Ids of a text without an end-of-document id; called by several threads at once.
using Encoder = std::function<std::vector<std::int32_t>(std::string_view)>;

struct PreprocessSummary {
  struct Output {
    std::string prefix;
    std::int64_t documents = 0, sequences = 0, tokens = 0;
  };
  std::vector<Output> outputs;
  /// How many held bytes that are not UTF-8, and "file:line" of the first.
  std::int64_t invalid_documents = 0;
  std::string first_invalid;
  std::uint64_t text_bytes = 0;
  double seconds = 0;
};

/// Bytes that are not UTF-8 are read as Python's errors='replace' reads them, in text and in JSON
/// alike, and counted. Writes the datasets byte for byte as Megatron's preprocess_data.py does. On
/// an error (a UserError naming file and line) nothing is left.
PreprocessSummary preprocess(const PreprocessOptions& options, const Encoder& encode);

}  // namespace megatron
