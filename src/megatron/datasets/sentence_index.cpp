#include "megatron/datasets/sentence_index.h"

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace megatron {
namespace {

constexpr std::int32_t kLongestSentence = 512;

struct Row {
  std::int64_t begin, end, target_length;
};

class Builder {
 public:
  explicit Builder(const SentenceIndexInput& input) : input_(input), random_(seed(input)) {
    if (input.short_sequence_probability > 0)
      short_ratio_ = std::llround(1.0 / input.short_sequence_probability);
  }

  std::vector<Row> build() {
    std::int64_t missing = input_.num_samples.value_or(1);
    while (missing > 0) {
      const std::size_t before = rows_.size();
      for (std::int64_t document = input_.begin; document < input_.end; ++document)
        add_document(document_begin(document), document_begin(document + 1));
      if (rows_.size() == before) break;
      missing = input_.num_samples.value_or(0) - std::ssize(rows_);
    }
    std::mt19937_64 shuffle(static_cast<std::uint64_t>(std::int64_t{input_.seed} + 1));
    for (std::size_t i = rows_.size(); i-- > 1;) std::swap(rows_[i], rows_[shuffle() % (i + 1)]);
    return std::move(rows_);
  }

 private:
  static std::uint32_t seed(const SentenceIndexInput& input) {
    return static_cast<std::uint32_t>(input.seed);
  }
  std::int64_t document_begin(std::int64_t document) const {
    return input_.document_begins[static_cast<std::size_t>(document)];
  }
  std::int32_t length(std::int64_t sentence) const {
    return input_.lengths[static_cast<std::size_t>(sentence)];
  }

  bool is_kept(std::int64_t begin, std::int64_t end) const {
    if (end - begin < input_.min_sentences) return false;
    for (std::int64_t sentence = begin; end - begin > 1 && sentence < end; ++sentence)
      if (length(sentence) > kLongestSentence) return false;
    return true;
  }

  std::int64_t draw_target_length() {
    if (short_ratio_ == 0) return input_.sequence_length;
    const auto drawn = static_cast<std::int64_t>(random_());
    return drawn % short_ratio_ == 0 ? 2 + drawn % (input_.sequence_length - 1)
                                     : input_.sequence_length;
  }

  void add_document(std::int64_t begin, std::int64_t end) {
    if (!is_kept(begin, end)) return;
    std::int64_t target = draw_target_length(), tokens = 0, first = begin;
    for (std::int64_t next = begin + 1; next <= end; ++next) {
      tokens += length(next - 1);
      const bool is_full =
          tokens >= target && end - next > 1 && next - first >= input_.min_sentences;
      if (!is_full && next < end) continue;
      rows_.push_back({first, next, target});
      first = next;
      target = draw_target_length();
      tokens = 0;
    }
  }

  const SentenceIndexInput& input_;
  std::mt19937 random_;
  std::int64_t short_ratio_ = 0;
  std::vector<Row> rows_;
};

template <class T>
NpyArray array_of(const std::vector<Row>& rows) {
  std::vector<T> values;
  values.reserve(3 * rows.size());
  for (const Row& row : rows)
    for (const std::int64_t value : {row.begin, row.end, row.target_length})
      values.push_back(static_cast<T>(value));
  return NpyArray(std::move(values), 3);
}

}  // namespace

NpyArray build_sentence_index(const SentenceIndexInput& input) {
  const std::vector<Row> rows = Builder(input).build();
  return input.lengths.size() > std::numeric_limits<std::uint32_t>::max()
             ? array_of<std::int64_t>(rows)
             : array_of<std::uint32_t>(rows);
}

}  // namespace megatron
