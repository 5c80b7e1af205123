#include "megatron/datasets/packed_documents.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

PackedDocuments pack_documents(const DocumentPackingInput& input) {
  const std::int64_t capacity = input.sequence_length;
  std::vector<std::int32_t> documents, begins, sizes;
  for (std::int64_t document = input.begin; document < input.end; ++document) {
    const std::int64_t length = input.lengths[static_cast<std::size_t>(document)];
    for (std::int64_t begin = 0; begin < length; begin += capacity) {
      documents.push_back(static_cast<std::int32_t>(document));
      begins.push_back(static_cast<std::int32_t>(begin));
      sizes.push_back(static_cast<std::int32_t>(piece_tokens(length, begin, capacity)));
      if (input.strategy == PackingStrategy::bfd) break;
    }
  }
  const Packing packing = pack_best_fit_decreasing(sizes, capacity);
  // `sizes` is reused, because there may be billions of pieces.
  const auto in_rows = [&](const std::vector<std::int32_t>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) sizes[i] = values[packing.items[i]];
    return sizes;
  };
  NpyArray document_array(in_rows(documents));
  documents = {};
  NpyArray begin_array(in_rows(begins));
  return {.documents = std::move(document_array),
          .begins = std::move(begin_array),
          .row_begins =
              NpyArray(std::vector<std::int64_t>(packing.begins.begin(), packing.begins.end()))};
}

PackingShare packing_share(const DocumentPackingInput& input, std::int64_t num_sequences) {
  PackingShare share{.strategy = std::string(packing_strategy_name(input.strategy)),
                     .is_used = true,
                     .documents = input.end - input.begin,
                     .sequences = num_sequences};
  for (std::int64_t document = input.begin; document < input.end; ++document) {
    const std::int64_t length = input.lengths[static_cast<std::size_t>(document)];
    const std::int64_t kept = input.strategy == PackingStrategy::bfd
                                  ? piece_tokens(length, 0, input.sequence_length)
                                  : length;
    share.tokens += kept;
    share.truncated += length - kept;
  }
  share.padding = num_sequences * input.sequence_length - share.tokens;
  return share;
}

}  // namespace megatron
