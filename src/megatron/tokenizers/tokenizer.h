// The interface of tokenizers, and make_tokenizer(), which opens the kinds that Megatron-LM's
// --tokenizer-type names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct TokenizerConfig;

/// The beginning of T5's sentinels, <extra_id_0>, <extra_id_1>, …
inline constexpr std::string_view kSentinelPrefix = "<extra_id_";
/// Returns T5's sentinel number i.
inline std::string sentinel_token(std::int64_t i) {
  return std::string(kSentinelPrefix) + std::to_string(i) + ">";
}

/// Selects whether decode() keeps tokens that mark structure rather than text (eod, bos, chat
/// roles).
enum class SpecialTokens { keep, skip };

/// How a tokenizer of images and text writes conversations.
struct MultimodalPrompt {
  std::string format;          ///< that of --tokenizer-prompt-format; "": none was given
  std::string image_tag_type;  ///< that of --image-tag-type; "": no tags
  bool force_system_message = false;
};

/// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the ids of one document as Megatron's preprocessing writes them, without the
  /// end-of-document id. Invalid UTF-8 is read as Python's errors='replace' reads it, unless
  /// accepts_invalid_utf8().
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// Returns the ids of a part of a text, such as a message: like encode(), but without the tokens
  /// that mark the beginning and the end of a whole text. Chat templates write those themselves.
  virtual std::vector<std::int32_t> encode_fragment(std::string_view text) const {
    return encode(text);
  }

  /// Returns the text of `ids`. Ids without a token (a model's padded vocabulary) are skipped. The
  /// text is valid UTF-8, except for ByteTokenizer.
  virtual std::string decode(std::span<const std::int32_t> ids,
                             SpecialTokens special = SpecialTokens::skip) const = 0;

  /// Returns the largest id + 1, the number of rows that an embedding needs.
  virtual std::int64_t vocab_size() const = 0;

  /// Returns the end-of-document id, which is also the end-of-sequence id; −1 when there is none.
  virtual std::int32_t eod() const = 0;
  virtual std::int32_t pad() const { return -1; }  ///< −1 when there is none
  virtual std::int32_t bos() const { return -1; }  ///< −1 when there is none
  virtual std::int32_t unk() const { return -1; }  ///< of unknown text; −1 when there is none
  virtual bool is_special(std::int32_t id) const { return id == eod(); }
  /// Returns the id of the token with this text, special or not; −1 when there is none.
  virtual std::int32_t find(std::string_view) const { return -1; }

  /// Returns the token of an id as the tokenizer's file writes it; "" when there is none.
  virtual std::string token(std::int32_t id) const = 0;

  /// Returns the bytes that a token, which is not special, adds to the text of the tokens before;
  /// "" if that is not known. They may be part of a character.
  virtual std::string token_bytes(std::int32_t id) const { return token(id); }

  /// Returns whether the text of a token can depend on the tokens after it, other than by the bytes
  /// of an incomplete character.
  virtual bool awaits_more(std::int32_t) const { return false; }

  /// Returns how the tokenizer writes conversations; null: that is not the tokenizer's business.
  virtual const MultimodalPrompt* multimodal_prompt() const { return nullptr; }

  /// Returns whether encode() accepts arbitrary bytes.
  virtual bool accepts_invalid_utf8() const { return false; }

  /// Returns the --tokenizer-type, such as "NullTokenizer".
  virtual std::string_view name() const = 0;
};

/// Returns whether the settings name a tokenizer.
bool has_tokenizer(const TokenizerConfig& config);

/// Returns the --tokenizer-type, or else the type that --tokenizer-metadata names, or else the type
/// recognized from the files. Throws a UserError when flag and metadata differ, or when the files
/// are of no known type.
std::string tokenizer_type(const TokenizerConfig& config);

/// Returns the settings with the type of --tokenizer-metadata as --tokenizer-type. Throws like
/// tokenizer_type().
TokenizerConfig with_resolved_type(TokenizerConfig config);

/// Opens the tokenizer of `config`. Its type is that of tokenizer_type(), or `default_type` if
/// `config` names neither type nor files. UserErrors name flag, file and field.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config,
                                          std::string_view default_type = "");

}  // namespace megatron
