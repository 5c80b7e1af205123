// Megatron-LM's MultimodalTokenizer: a tokenizer.json with special tokens for images behind its
// vocabulary, tags around images, and a format of conversations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"

namespace megatron {

struct TokenizerConfig;

/// The text that stands for an image.
inline constexpr std::string_view kImageToken = "<image>";

/// What stands before and behind each image; empty: nothing.
struct ImageTags {
  std::string_view before, after;

  /// Returns the text with the tags around each image.
  std::string add_to(std::string_view text) const;
};

/// Returns the tags of an --image-tag-type. Throws a UserError that lists the types.
ImageTags image_tags(const std::string& type);

class MultimodalTokenizer : public HuggingFaceTokenizer {
 public:
  /// Reads `path`, a tokenizer.json, with the special tokens, the prompt format and the tags of
  /// `config`. Throws a UserError if the format or the tags do not exist.
  MultimodalTokenizer(const std::filesystem::path& path, const TokenizerConfig& config);

  /// Adds the tags.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::int32_t pad() const override { return pad_; }
  const MultimodalPrompt* multimodal_prompt() const override { return &prompt_; }

 private:
  MultimodalPrompt prompt_;
  ImageTags tags_;
  std::int32_t pad_;
};

}  // namespace megatron
