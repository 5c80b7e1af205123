// Chooses which documents share a sequence, so that few are divided and little is padding: best-fit
// packing, as in "Fewer Truncations Improve Language Modeling" (Ding et al., 2024).
#pragma once

#include <algorithm>
#include <cstdint>

#include "megatron/datasets/dataset.h"
#include "megatron/datasets/npy.h"
#include "megatron/datasets/packing.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

struct DocumentPackingInput {
  UnalignedView<std::int32_t> lengths;  ///< number of tokens of every document of the source
  std::int64_t begin = 0, end = 0;      ///< range of this split's documents
  std::int64_t sequence_length = 0;
  PackingStrategy strategy = PackingStrategy::bfd_split;  ///< bfd or bfd_split
};

/// The sequences of one epoch. Each holds pieces of documents, which ascend. A piece is at least
/// one token that has a successor in its document, so that every sequence has something to predict.
struct PackedDocuments {
  NpyArray documents;        ///< int32 [pieces]: the document of each piece
  NpyArray begins;           ///< int32 [pieces]: the piece's first token in its document
  NpyArray sequence_begins;  ///< int64 [sequences + 1]: the first piece of each, then their number
  std::int64_t num_sequences() const { return sequence_begins.size() - 1; }
};

/// Divides documents that are longer than a sequence, or cuts them with the strategy bfd, and packs
/// the pieces. Documents of less than two tokens are left out, and so is a last token that would be
/// a piece alone: it is the label of the token before it. Throws a UserError if there are too many
/// pieces.
PackedDocuments pack_documents(const DocumentPackingInput& input);

/// Returns the number of tokens of a piece, which begins at token `begin` of a document.
inline std::int64_t piece_tokens(std::int64_t document_length, std::int64_t begin,
                                 std::int64_t sequence_length) {
  return std::min(document_length - begin, sequence_length);
}

/// Counts the tokens and the padding of the sequences for the strategy of the run. Tokens are cut
/// off if they are in no sequence and no label.
PackingShare packing_share(const DocumentPackingInput& input, std::int64_t num_sequences);

}  // namespace megatron
