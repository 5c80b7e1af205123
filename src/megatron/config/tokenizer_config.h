// The settings of the tokenizer and of its chat template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

struct TokenizerConfig {
  /// A type that tokenizer_table() lists; "": recognized from the files.
  std::string tokenizer_type;
  std::string tokenizer_model, vocab_file, merge_file;
  /// Name of a pattern or a regular expression; "": that of the file.
  std::string tiktoken_pattern;
  std::int64_t tiktoken_num_special_tokens = 1000;
  /// The first special tokens of TikTokenizer; empty: Megatron's seven.
  std::vector<std::string> tokenizer_special_tokens;
  /// Names the text that MultimodalTokenizer writes around the messages of a conversation; "":
  /// conversations are refused.
  std::string tokenizer_prompt_format;
  std::string image_tag_type;         ///< tags around images: nvlm | internvl; "": none
  bool force_system_message = false;  ///< qwen2p0 and qwen2p5 begin with their own system message
  /// A file, or the name of one of the model's templates; "": that of the model.
  std::string chat_template;
  std::string tokenizer_metadata;  ///< a tokenizer_metadata.json of Megatron Core
  bool tokenizer_hf_no_include_special_tokens = false;  ///< encode() adds no bos, eos, [CLS], [SEP]
  std::optional<std::int64_t> null_tokenizer_eod_id;    ///< none: --vocab-size − 1
  std::int64_t null_tokenizer_pad_id = -1;              ///< −1: there is none
  std::optional<std::int64_t> vocab_size;
  /// Number of rows of the embedding; none: the size of the vocabulary.
  std::optional<std::int64_t> padded_vocab_size;
  std::int64_t make_vocab_size_divisible_by = 128;

  /// Returns whether a flag gives the type, or a file that has it.
  bool has_type_or_model() const {
    return !tokenizer_type.empty() || !tokenizer_model.empty() || !tokenizer_metadata.empty();
  }
  bool operator==(const TokenizerConfig&) const = default;
};

}  // namespace megatron
