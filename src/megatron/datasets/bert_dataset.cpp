// Samples for BERT, as megatron-core's BERTMaskedWordPieceDataset: two parts of a document, in
// order or not, with masked words (Devlin et al., 2018).
#include <numeric>
#include <span>
#include <utility>

#include "megatron/datasets/masked_dataset.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

std::vector<SampleField> bert_fields(std::int64_t length) {
  return {{.name = "tokens", .shape = {length}, .holds_tokens = true},
          {.name = "types", .shape = {length}},
          {.name = "labels", .shape = {length}, .holds_tokens = true},
          {.name = "is_random", .per_position = false},
          {.name = "padding_mask", .shape = {length}},
          {.name = "loss_mask", .type = std::vector<float>(), .shape = {length}},
          {.name = "truncated", .per_position = false},
          {.name = "position_ids", .shape = {length}}};
}

class BertDataset : public MaskedDataset {
 public:
  BertDataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options,
              std::vector<std::string>& warnings);

  /// Returns megatron-core's types, labels (0 where nothing is predicted), is_random (the parts are
  /// in the wrong order), padding_mask, loss_mask and truncated. The tokens are its text.
  Sample sample(std::int64_t index) const override;

 private:
  struct Pair {
    std::vector<std::int64_t> first, second;
    bool is_random = false, truncated = false;
  };
  Pair draw_pair(Draw& draw) const;
  static void truncate(Pair& pair, std::int64_t length, RandomState& random);
};

BertDataset::BertDataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options,
                         std::vector<std::string>& warnings)
    : MaskedDataset(std::move(source), std::move(part), options,
                    {.class_name = "BERTMaskedWordPieceDataset",
                     .fields = bert_fields(options.sequence_length),
                     .added_tokens = 3,
                     .min_sentences = options.masked.binary_head ? 2 : 1,
                     .key = "classification_head",
                     .value = options.masked.binary_head},
                    warnings) {
  require_token(options.masked.tokens.cls, "[CLS]", "BERT");
  require_token(options.masked.tokens.sep, "[SEP]", "BERT");
  require_token(options.masked.tokens.mask, "[MASK]", "BERT");
  require_token(options.masked.tokens.pad, "[PAD]", "BERT");
}

/// Removes tokens from either end of the longer part until both have `length` tokens.
void BertDataset::truncate(Pair& pair, std::int64_t length, RandomState& random) {
  auto first = std::span<const std::int64_t>(pair.first),
       second = std::span<const std::int64_t>(pair.second);
  while (std::ssize(first) + std::ssize(second) > length) {
    auto& longer = first.size() > second.size() ? first : second;
    longer = random.uniform() < 0.5 ? longer.subspan(1) : longer.first(longer.size() - 1);
    pair.truncated = true;
  }
  pair.first = std::vector(first.begin(), first.end());
  pair.second = std::vector(second.begin(), second.end());
}

BertDataset::Pair BertDataset::draw_pair(Draw& draw) const {
  Pair pair;
  std::size_t pivot = draw.sentences.size();
  if (options().masked.binary_head) {
    pivot = draw.sentences.size() < 3 ? 1 : 1 + draw.random.interval(draw.sentences.size() - 2);
    pair.is_random = draw.random.uniform() < 0.5;
  }
  for (std::size_t i = 0; i < draw.sentences.size(); ++i) {
    auto& part = i < pivot ? pair.first : pair.second;
    part.insert(part.end(), draw.sentences[i].begin(), draw.sentences[i].end());
  }
  if (pair.is_random) std::swap(pair.first, pair.second);
  truncate(pair, draw.target_length, draw.random);
  return pair;
}

Sample BertDataset::sample(std::int64_t index) const {
  const MaskingTokens& special = options().masked.tokens;
  const auto length = static_cast<std::size_t>(options().sequence_length);
  Draw draw = this->draw(index);
  const Pair pair = draw_pair(draw);
  Ids tokens{special.cls};
  tokens.insert(tokens.end(), pair.first.begin(), pair.first.end());
  tokens.push_back(special.sep);
  Ids types(tokens.size(), 0);
  if (!pair.second.empty()) {
    tokens.insert(tokens.end(), pair.second.begin(), pair.second.end());
    tokens.push_back(special.sep);
    types.resize(tokens.size(), 1);
  }
  // Of the masked tokens, 80 % become [MASK], 10 % a random token, and 10 % stay.
  MaskedTokens masked = mask_words(
      tokens, draw.target_length, options().masked.masking, special,
      [&](RandomState& random) -> std::optional<std::int64_t> {
        if (random.uniform() < 0.8) return special.mask;
        if (random.uniform() < 0.5) return std::nullopt;
        return random.interval(static_cast<std::uint64_t>(special.vocab_size - 1));
      },
      draw.random);
  Ids padding_mask(tokens.size(), 1), labels(length), positions(length);
  std::vector<float> loss_mask(length);
  for (const MaskedSpan& span : masked.spans) {
    for (std::size_t i = 0; i < span.positions.size(); ++i) {
      labels[span.positions[i]] = span.labels[i];
      loss_mask[span.positions[i]] = 1;
    }
  }
  std::iota(positions.begin(), positions.end(), 0);
  Ids padding(positions.begin() + std::ssize(tokens), positions.end());
  // megatron-core fills all three with the padding token, which is a type only if it is 0 or 1.
  types.resize(length, special.pad <= 1 ? special.pad : 0);
  for (auto* values : {&masked.tokens, &padding_mask}) values->resize(length, special.pad);
  return {{fields(), std::move(masked.tokens), std::move(types), std::move(labels),
           Ids{pair.is_random ? 1 : 0}, std::move(padding_mask), std::move(loss_mask),
           Ids{pair.truncated ? 1 : 0}, std::move(positions)},
          {0},
          std::move(padding)};
}

}  // namespace

std::shared_ptr<const SourceDataset> make_bert_dataset(const SentenceSource& source,
                                                       const SourcePart& part,
                                                       const GptDatasetOptions& options,
                                                       std::vector<std::string>& warnings) {
  return std::make_shared<const BertDataset>(source, part, options, warnings);
}

}  // namespace megatron
