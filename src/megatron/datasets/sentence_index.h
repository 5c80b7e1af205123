// Cuts documents into samples of consecutive sentences, as megatron-core's BERT and T5 datasets do:
// the same seed gives the same samples in the same order.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/datasets/npy.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

struct SentenceIndexInput {
  UnalignedView<std::int32_t> lengths;          ///< tokens of every sentence of the source
  UnalignedView<std::int64_t> document_begins;  ///< first sentence of every document, then the
                                                ///< number of sentences
  std::int64_t begin = 0, end = 0;              ///< range of this split's documents
  std::optional<std::int64_t> num_samples;      ///< lower bound; nullopt: one epoch
  std::int64_t sequence_length = 0;             ///< without the tokens that samples add
  double short_sequence_probability = 0;        ///< probability of a shorter target length
  std::int32_t seed = 0;
  std::int64_t min_sentences = 1;  ///< per sample; documents with fewer are left out
};

/// Returns an array [samples, 3], shuffled: the first sentence of each sample, the sentence behind
/// its last one, and its target length. Documents of several sentences, one of which has more than
/// 512 tokens, are left out. Without documents that are kept, there are no samples.
NpyArray build_sentence_index(const SentenceIndexInput& input);

}  // namespace megatron
