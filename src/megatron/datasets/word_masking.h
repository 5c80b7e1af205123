// Chooses the words of a sample that a model must predict, as megatron-core's
// MaskedWordPieceDataset does: the same generator gives the same words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/datasets/random_state.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// The tokens that masked samples need. Ids are −1 where the tokenizer has no such token.
struct MaskingTokens {
  std::int64_t cls = -1, sep = -1, mask = -1, pad = -1, bos = -1, eos = -1;
  std::vector<std::int64_t> sentinels = {};  ///< of T5, in the order of use
  std::int64_t vocab_size = 0;               ///< replacements are drawn below this
  std::shared_ptr<const Tokenizer> tokenizer = {};
};

/// Finds BERT's special tokens, and the sentinels <extra_id_0>, <extra_id_1>, …; `extra_ids`
/// sentinels follow the vocabulary if it has none, as with Megatron-LM's --vocab-extra-ids.
MaskingTokens masking_tokens(std::shared_ptr<const Tokenizer> tokenizer, std::int64_t extra_ids);

struct MaskingOptions {
  double probability = 0.15;  ///< share of the tokens that are masked
  double short_sequence_probability = 0.1;
  std::int64_t max_ngram = 3;  ///< longest run of words that is masked at once
  bool whole_words = true;
  bool longer_ngrams = false;  ///< longer runs are likelier than shorter ones
  bool geometric = false;      ///< lengths of runs are geometric with p = 0.2, as in SpanBERT
};

/// What samples of BERT and T5 need, masked or labelled.
struct MaskedRequest {
  MaskingOptions masking = {};
  MaskingTokens tokens = {};
  bool binary_head = true;                   ///< BERT: pairs of sentences
  std::int64_t decoder_sequence_length = 0;  ///< T5
  std::int64_t num_classes = 0;              ///< of labelled texts; 0: not checked
  std::int64_t num_tokentypes = 2;           ///< of labelled texts: pairs have two
};

/// Tokens that were masked together, ascending positions.
struct MaskedSpan {
  std::vector<std::size_t> positions;
  std::vector<std::int64_t> labels;
};

struct MaskedTokens {
  std::vector<std::int64_t> tokens;
  std::vector<MaskedSpan> spans;  ///< ascending
};

/// Draws what takes the place of a masked token; nullopt: the token itself.
using DrawMask = std::function<std::optional<std::int64_t>(RandomState&)>;

/// Masks words of a sample whose target length is `target_length`.
MaskedTokens mask_words(const std::vector<std::int64_t>& tokens, std::int64_t target_length,
                        const MaskingOptions& options, const MaskingTokens& special,
                        const DrawMask& draw_mask, RandomState& random);

}  // namespace megatron
