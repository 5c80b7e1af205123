// Reads the texts of the documents of input files: the fields of JSON lines, or plain text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/json_lines.h"
#include "megatron/datasets/text_chunks.h"

namespace megatron {

/// Not thread-safe.
class DocumentReader {
 public:
  /// `keys` are the fields of JSON lines. `keeps_invalid_utf8` leaves plain text as it is; else its
  /// invalid UTF-8 is read as U+FFFD, as that of JSON is.
  DocumentReader(const std::vector<std::string>& keys, bool keeps_invalid_utf8)
      : parser_(keys), texts_(keys.size()), keeps_invalid_utf8_(keeps_invalid_utf8) {}

  /// Returns the texts of each key; plain text is that of the first one. The result is valid until
  /// the next call. `document` is one of split_documents(chunk). Throws a UserError that names
  /// `source`, "file:line", for malformed JSON.
  const std::vector<std::vector<std::string_view>>& read(const TextChunk& chunk,
                                                         const TextDocument& document,
                                                         const std::string& source);
  /// Returns whether the last document contained invalid UTF-8.
  bool had_invalid_utf8() const { return had_invalid_utf8_; }

 private:
  JsonLineParser parser_;
  std::vector<std::vector<std::string_view>> texts_;
  std::string replaced_;
  bool keeps_invalid_utf8_, had_invalid_utf8_ = false;
};

}  // namespace megatron
