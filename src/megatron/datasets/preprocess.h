// Implements `preprocess-data`: converts text to indexed datasets. Files are read, tokenized by
// threads and written in order, with bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/cleaning/document_cleaner.h"
#include "megatron/datasets/prompt_format.h"
#include "megatron/datasets/punkt_splitter.h"
#include "megatron/datasets/text_chunks.h"

namespace megatron {

struct PreprocessOptions {
  std::vector<std::string> inputs;  ///< paths or globs of JSON lines, or of text with the ending
                                    ///< .txt; each may be compressed (.gz, .zst)
  std::vector<std::string> json_keys = {"text"};  ///< one dataset is written per key
  /// Datasets are `{output_prefix}_{key}_document`, or `…_sentence` with `sentences`.
  std::string output_prefix;
  DocumentKind text_documents = DocumentKind::paragraph;  ///< documents of .txt files; their key is
                                                          ///< "text"
  bool append_eod = false;
  std::int64_t eod = -1;
  std::int64_t vocab_size = 0;       ///< upper bound of ids; determines the element type
  std::int64_t workers = 1;          ///< number of tokenizing threads
  std::int64_t log_interval = 1000;  ///< documents between progress lines
  /// The tokenizer accepts any bytes, so texts of .txt files are not converted to valid UTF-8.
  bool accepts_invalid_utf8 = false;
  /// Skips documents that cannot be read or tokenized, and counts them; else the first one stops.
  bool skip_malformed = false;
  /// Document i goes to partition i mod partitions, and the dataset holds one partition after the
  /// other, as with Megatron's --partitions.
  std::int64_t partitions = 1;
  /// Seconds between checkpoints, from which the next run continues after a kill. There are none
  /// when the standard input is read.
  double checkpoint_interval_s = 30;
  /// Makes each sentence a sequence of its document; null: each text is one sequence.
  std::shared_ptr<const PunktSplitter> sentences = {};
  /// Reads conversations, of which each line makes one sequence; null: texts. Then `encode` is not
  /// called, and `json_keys` is "messages".
  std::shared_ptr<const PromptFormat> conversations = {};
  CleaningOptions cleaning = {};  ///< which documents are left out
  /// Files that the encoder reads. Output may replace none of them.
  std::vector<fs::path> encoder_files = {};
  std::string encoder_identity = {};  ///< differs for encoders that may give other ids
  std::ostream* log = nullptr;
  bool log_is_terminal = false;  ///< rewrites one progress line that shows the remaining time
};

/// Returns the ids of a text without an end-of-document id. Several threads call it at once.
using Encoder = std::function<std::vector<std::int32_t>(std::string_view)>;

struct PreprocessSummary {
  struct Output {
    std::string prefix;
    std::int64_t documents = 0, sequences = 0, tokens = 0;
  };
  std::vector<Output> outputs;
  /// Number of documents with invalid UTF-8, and "file:line" of the first one.
  std::int64_t invalid_documents = 0;
  std::string first_invalid;
  /// Number of documents skipped, and what is wrong with the first ones: "file:line: reason".
  std::int64_t malformed_documents = 0;
  std::vector<std::string> first_malformed;
  static constexpr std::size_t kMostShown = 10;
  CleaningReport cleaning;        ///< empty without cleaning
  bool reads_text_files = false;  ///< whose documents are as PreprocessOptions::text_documents says
  std::uint64_t text_bytes = 0;
  double seconds = 0;
};

/// Writes the datasets byte for byte as Megatron's preprocess_data.py does. Invalid UTF-8 in text
/// and JSON is read as Python's errors='replace' reads it, and is counted. On an error, a UserError
/// with file and line, no output remains. After a kill, a call with the same options and inputs
/// continues where the last checkpoint was made.
PreprocessSummary preprocess(const PreprocessOptions& options, const Encoder& encode);

}  // namespace megatron
