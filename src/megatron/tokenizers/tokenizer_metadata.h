// Reads tokenizer_metadata.json, in which Megatron Core keeps what a tokenizer's files do not say
// (MegatronTokenizer.write_metadata()).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct TokenizerMetadata {
  std::string library;
  std::vector<std::string_view> types;  ///< the --tokenizer-types of the library
  bool has_chat_template = false;       ///< its field chat_template is a text

  bool allows(std::string_view type) const;
  /// Returns the type that is opened without a --tokenizer-type; "": the files decide.
  std::string_view default_type() const;
};

/// Throws a UserError that names file and field, also for a class of the user's own, which is
/// Python.
TokenizerMetadata read_tokenizer_metadata(const std::filesystem::path& path);

}  // namespace megatron
