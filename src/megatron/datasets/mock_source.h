// Generates tokens without a corpus, as megatron-core's --mock-data: 100,000 sequences whose
// lengths come from numpy's default_rng(0).
#pragma once

#include <memory>
#include <vector>

#include "megatron/datasets/masked_dataset.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

/// Sequence i counts 1, 2, 3, … modulo the vocabulary size and ends with the end-of-document id, if
/// the tokenizer has one.
class MockTokenSource : public TokenSource {
 public:
  /// Sequences have fewer than `limit` tokens.
  MockTokenSource(std::int64_t vocab_size, std::int64_t eod, std::int32_t limit = 4096);
  std::string name() const override { return "mock data"; }
  UnalignedView<std::int32_t> sequence_lengths() const override;
  void read(std::int64_t sequence, std::int64_t offset,
            std::span<std::int64_t> tokens) const override;

 private:
  std::int64_t vocab_size_, eod_;
  std::vector<std::int32_t> lengths_;
};

/// Returns documents of eight mock sequences of fewer than 64 tokens each, for BERT and T5, of
/// which megatron-core has no mock data.
SentenceSource mock_sentences(std::int64_t vocab_size, std::int64_t eod);

/// Gives the tokens that the tokenizer of mock sentences lacks, as NullTokenizer does, the last ids
/// of its vocabulary before the very last one, which ends documents.
void add_mock_tokens(MaskingTokens& tokens);

}  // namespace megatron
