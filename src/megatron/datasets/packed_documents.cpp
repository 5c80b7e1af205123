#include "megatron/datasets/packed_documents.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Calls visit(document, begin, tokens) for each piece.
template <class Visit>
void for_each_piece(const DocumentPackingInput& input, const Visit& visit) {
  MEGATRON_CHECK(input.strategy != PackingStrategy::line, "documents have no lines");
  for (std::int64_t document = input.begin; document < input.end; ++document) {
    const std::int64_t length = input.lengths[static_cast<std::size_t>(document)];
    for (std::int64_t begin = 0; begin + 1 < length; begin += input.sequence_length) {
      visit(document, begin, piece_tokens(length, begin, input.sequence_length));
      if (input.strategy == PackingStrategy::bfd) break;
    }
  }
}

std::size_t count_pieces(const DocumentPackingInput& input) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max() - 1;
  std::size_t count = 0;
  for_each_piece(input, [&](auto...) { ++count; });
  if (count > kMost)
    throw UserError(
        {"--document-packing-strategy: documents are packed in " + std::to_string(count) + " parts",
         "at most " + std::to_string(kMost) + " are possible",
         "use a longer --seq-length, or divide the data into several datasets"});
  return count;
}

}  // namespace

PackedDocuments pack_documents(const DocumentPackingInput& input) {
  std::vector<std::int32_t> documents, begins, sizes;
  const std::size_t count = count_pieces(input);
  for (auto* values : {&documents, &begins, &sizes}) values->reserve(count);
  for_each_piece(input, [&](std::int64_t document, std::int64_t begin, std::int64_t tokens) {
    documents.push_back(static_cast<std::int32_t>(document));
    begins.push_back(static_cast<std::int32_t>(begin));
    sizes.push_back(static_cast<std::int32_t>(tokens));
  });
  const Packing packing = pack_best_fit_decreasing(sizes, input.sequence_length);
  // `sizes` is reused, because there may be billions of pieces.
  const auto in_sequences = [&](const std::vector<std::int32_t>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) sizes[i] = values[packing.items[i]];
    return sizes;
  };
  NpyArray document_array(in_sequences(documents));
  documents = {};
  NpyArray begin_array(in_sequences(begins));
  return {.documents = std::move(document_array),
          .begins = std::move(begin_array),
          .sequence_begins =
              NpyArray(std::vector<std::int64_t>(packing.begins.begin(), packing.begins.end()))};
}

PackingShare packing_share(const DocumentPackingInput& input, std::int64_t num_sequences) {
  PackingShare share{.strategy = std::string(packing_strategy_name(input.strategy)),
                     .is_used = true,
                     .documents = input.end - input.begin,
                     .sequences = num_sequences};
  for_each_piece(input, [&](std::int64_t document, std::int64_t begin, std::int64_t tokens) {
    share.tokens += tokens;
    const std::int64_t rest =
        input.lengths[static_cast<std::size_t>(document)] - begin - tokens - 1;  // behind the label
    if (input.strategy == PackingStrategy::bfd) share.truncated += std::max<std::int64_t>(0, rest);
  });
  share.padding = num_sequences * input.sequence_length - share.tokens;
  return share;
}

}  // namespace megatron
