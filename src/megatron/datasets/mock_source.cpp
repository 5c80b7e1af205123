#include "megatron/datasets/mock_source.h"

#include "megatron/base/error.h"
#include "megatron/datasets/random_state.h"

namespace megatron {

MockTokenSource::MockTokenSource(std::int64_t vocab_size, std::int64_t eod, std::int32_t limit)
    : vocab_size_(vocab_size), eod_(eod), lengths_(Pcg64(0).integers(1, limit, 100000)) {
  MEGATRON_CHECK(vocab_size > 0, "mock data needs a vocabulary");
}

UnalignedView<std::int32_t> MockTokenSource::sequence_lengths() const {
  return {reinterpret_cast<const std::byte*>(lengths_.data()), lengths_.size()};
}

void MockTokenSource::read(std::int64_t sequence, std::int64_t offset,
                           std::span<std::int64_t> tokens) const {
  const std::int64_t length = lengths_.at(static_cast<std::size_t>(sequence));
  MEGATRON_CHECK(offset >= 0 && offset + std::int64_t(tokens.size()) <= length, "mock sequence ",
                 sequence, " ends before ", offset, "+", tokens.size());
  for (std::int64_t& token : tokens) {
    ++offset;
    token = offset == length && eod_ >= 0 ? eod_ : offset % vocab_size_;
  }
}

SentenceSource mock_sentences(std::int64_t vocab_size, std::int64_t eod) {
  constexpr std::int64_t kSentences = 8;
  struct Mock {
    MockTokenSource tokens;
    std::vector<std::int64_t> begins;
  };
  const auto mock = std::make_shared<Mock>(Mock{MockTokenSource(vocab_size, eod, 64), {}});
  const auto count = static_cast<std::int64_t>(mock->tokens.sequence_lengths().size());
  for (std::int64_t begin = 0; begin <= count; begin += kSentences) mock->begins.push_back(begin);
  return {std::shared_ptr<const TokenSource>(mock, &mock->tokens),
          {reinterpret_cast<const std::byte*>(mock->begins.data()), mock->begins.size()}};
}

void add_mock_tokens(MaskingTokens& tokens) {
  std::int64_t last = tokens.vocab_size - 1;
  for (std::int64_t* id : {&tokens.cls, &tokens.sep, &tokens.mask, &tokens.pad, &tokens.bos})
    if (*id < 0) *id = --last;
}

}  // namespace megatron
