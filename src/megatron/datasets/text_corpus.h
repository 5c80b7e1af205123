// Reads all texts of input files by several threads, for what depends neither on their order nor on
// their boundaries, such as the counts of words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/text_chunks.h"

namespace megatron {

struct TextCorpusOptions {
  std::vector<std::string> inputs;  ///< as in PreprocessOptions
  std::string flag = "FILE";        ///< what errors call an input
  InputFormat format = InputFormat::by_name;
  std::vector<std::string> json_keys = {"text"};
  DocumentKind text_documents = DocumentKind::full_line;
  std::int64_t workers = 1;  ///< number of threads
  /// Skips documents that are malformed or no valid UTF-8, and counts them; else the first one is
  /// an error.
  bool skip_malformed = false;
  /// Receives the (compressed) bytes read of all files, and their size; 0 when it is unknown.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct TextCorpusSummary {
  std::int64_t documents = 0, malformed_documents = 0;
  std::string first_malformed;  ///< "file:line: reason"
  std::uint64_t text_bytes = 0;
};

/// A text of valid UTF-8 and its place in the files.
struct CorpusText {
  std::size_t worker;  ///< calls with different numbers may be concurrent
  std::string_view text;
  const TextChunk& chunk;
  std::uint64_t chunk_number;  ///< of all chunks of all files, in order
  std::int64_t line;
};
using TextVisitor = std::function<void(const CorpusText&)>;

/// Passes every text to `visit`, in no order. Throws a UserError with file and line.
TextCorpusSummary read_text_corpus(const TextCorpusOptions& options, const TextVisitor& visit);

}  // namespace megatron
