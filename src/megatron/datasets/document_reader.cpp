#include "megatron/datasets/document_reader.h"

#include "megatron/tokenizers/utf8.h"

namespace megatron {

const std::vector<std::vector<std::string_view>>& DocumentReader::read(const TextChunk& chunk,
                                                                       const TextDocument& document,
                                                                       const std::string& source) {
  if (chunk.kind == DocumentKind::json_line) {
    const auto& texts = parser_.parse(document.text, source);
    had_invalid_utf8_ = parser_.had_invalid_utf8();
    return texts;
  }
  auto valid = keeps_invalid_utf8_ ? std::nullopt : replace_invalid_utf8(document.text);
  had_invalid_utf8_ = valid.has_value();
  if (valid) replaced_ = std::move(*valid);
  texts_[0].assign(1, had_invalid_utf8_ ? std::string_view(replaced_) : document.text);
  return texts_;
}

}  // namespace megatron
