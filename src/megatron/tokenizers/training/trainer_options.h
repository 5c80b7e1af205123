// What `megatron tokenizer train` trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"

namespace megatron {

enum class TrainedModel { byte_bpe, wordpiece, unigram };

/// The characters that are in the vocabulary of byte_bpe in any case.
enum class InitialAlphabet {
  bytes,  ///< all 256 bytes, so that any text can be encoded
  text    ///< none; only the bytes of the text
};

/// The settings of the trainers of the `tokenizers` package, under its names, and of the stages
/// before the model.
struct TokenizerTrainerOptions {
  TrainedModel model = TrainedModel::byte_bpe;
  std::optional<std::int64_t> vocab_size = {};  ///< unset: 8000 for Unigram, 30000 for the others
  std::int64_t min_frequency = 0;               ///< of BPE and WordPiece
  /// Unset: those of BERT for WordPiece, and none for the others.
  std::optional<std::vector<std::string>> special_tokens = {};
  std::optional<std::int64_t> limit_alphabet = {};    ///< of BPE and WordPiece
  std::optional<std::int64_t> max_token_length = {};  ///< of BPE
  InitialAlphabet initial_alphabet = InitialAlphabet::bytes;
  std::string continuing_subword_prefix = "##";  ///< of WordPiece
  std::string unk_token = {};                    ///< "": [UNK] of WordPiece and <unk> of Unigram
  double shrinking_factor = 0.75;                ///< of Unigram
  std::int64_t n_sub_iterations = 2;             ///< of Unigram
  std::int64_t max_piece_length = 16;            ///< of Unigram, in characters
  std::int64_t seed_size = 1000000;              ///< of Unigram
  std::string normalizer = {};                   ///< a name; "": that of the model's kind
  std::string pre_tokenizer = {};  ///< a name or a regular expression; "": that of the model's kind
};

/// Returns the options with the defaults of the model in place of what is unset.
TokenizerTrainerOptions with_defaults(TokenizerTrainerOptions options);

/// Return the components of tokenizer.json that the options name. Throw a UserError for names that
/// do not exist or do not fit the model.
JsonText normalizer_component(const TokenizerTrainerOptions& options);
JsonText pre_tokenizer_component(const TokenizerTrainerOptions& options);
JsonText decoder_component(const TokenizerTrainerOptions& options);

}  // namespace megatron
