// Samples for T5, as megatron-core's T5MaskedWordPieceDataset: runs of words are replaced by
// sentinels in the encoder's text, and the decoder predicts them (Raffel et al., 2020).
#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/datasets/masked_dataset.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

std::vector<SampleField> t5_fields(std::int64_t encoder, std::int64_t decoder) {
  return {{.name = "text_enc", .shape = {encoder}, .holds_tokens = true},
          {.name = "text_dec", .shape = {decoder}, .holds_tokens = true},
          {.name = "labels", .shape = {decoder}, .holds_tokens = true},
          {.name = "loss_mask", .type = std::vector<float>(), .shape = {decoder}},
          {.name = "truncated", .per_position = false},
          {.name = "enc_mask", .shape = {encoder}},
          {.name = "dec_mask", .shape = {decoder}}};
}

template <class T = std::int64_t>
std::vector<T> mask_of(std::size_t tokens, std::size_t length) {
  std::vector<T> mask(tokens, 1);
  mask.resize(length, 0);
  return mask;
}

void append(Ids& out, const Ids& ids, std::size_t begin, std::size_t end) {
  out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
             ids.begin() + static_cast<std::ptrdiff_t>(end));
}

class T5Dataset : public MaskedDataset {
 public:
  T5Dataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options,
            std::vector<std::string>& warnings);

  /// Returns megatron-core's text_enc, text_dec, labels (0 where nothing is predicted), loss_mask,
  /// truncated, enc_mask and dec_mask. Throws a UserError for a sample with more runs than there
  /// are sentinels, or that does not fit the decoder.
  Sample sample(std::int64_t index) const override;
};

T5Dataset::T5Dataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options,
                     std::vector<std::string>& warnings)
    : MaskedDataset(
          std::move(source), std::move(part), options,
          {.class_name = "T5MaskedWordPieceDataset",
           .fields = t5_fields(options.sequence_length, options.masked.decoder_sequence_length),
           .added_tokens = 2,
           .min_sentences = 1,
           .key = "sequence_length_decoder",
           .value = options.masked.decoder_sequence_length},
          warnings) {
  require_token(options.masked.tokens.bos, "[BOS]", "T5");
  require_token(options.masked.tokens.eos, "[EOS]", "T5");
  require_token(options.masked.tokens.pad, "[PAD]", "T5");
  if (options.masked.decoder_sequence_length < 1)
    throw UserError({"samples of T5 need --decoder-seq-length", "", "give it, for example 128"});
  if (options.masked.tokens.sentinels.empty())
    throw UserError({"samples of T5 need sentinels", "the tokenizer has no <extra_id_0>",
                     "give --vocab-extra-ids, for example 100"});
}

Sample T5Dataset::sample(std::int64_t index) const {
  const MaskingTokens& special = options().masked.tokens;
  Draw draw = this->draw(index);
  Ids tokens;
  for (const Ids& sentence : draw.sentences)
    tokens.insert(tokens.end(), sentence.begin(), sentence.end());
  const auto target = static_cast<std::size_t>(draw.target_length);
  const bool truncated = tokens.size() > target;
  tokens.resize(std::min(tokens.size(), target));
  const MaskedTokens masked = mask_words(
      tokens, draw.target_length, options().masked.masking, special,
      [&](RandomState&) { return special.mask; }, draw.random);
  if (masked.spans.size() > special.sentinels.size())
    throw UserError({describe(index) + " has " + std::to_string(masked.spans.size()) + " masks",
                     "there are " + std::to_string(special.sentinels.size()) + " sentinels",
                     special.sentinels.front() < special.vocab_size  // the tokenizer's own
                         ? "lower --mask-prob or --seq-length"
                         : "raise --vocab-extra-ids"});
  Ids encoder, decoder{special.bos};
  std::size_t next = 0;
  for (std::size_t i = 0; i < masked.spans.size(); ++i) {
    const auto& [positions, labels] = masked.spans[i];
    append(encoder, tokens, next, positions.front());
    encoder.push_back(special.sentinels[i]);
    decoder.push_back(special.sentinels[i]);
    append(decoder, labels, 0, labels.size());
    next = positions.back() + 1;
  }
  append(encoder, tokens, next, tokens.size());
  Ids labels(decoder.begin() + 1, decoder.end());
  labels.push_back(special.eos);

  const auto encoder_length = static_cast<std::size_t>(options().sequence_length),
             decoder_length = static_cast<std::size_t>(options().masked.decoder_sequence_length);
  const std::size_t encoder_tokens = encoder.size(), decoder_tokens = decoder.size();
  if (decoder_tokens > decoder_length)
    throw UserError(
        {describe(index) + " has " + std::to_string(decoder_tokens) + " tokens for the decoder",
         "--decoder-seq-length is " + std::to_string(decoder_length),
         "raise it, or lower --mask-prob"});
  encoder.resize(encoder_length, special.pad);
  decoder.resize(decoder_length, special.pad);
  labels.resize(decoder_length);
  return {{fields(), std::move(encoder), std::move(decoder), std::move(labels),
           mask_of<float>(decoder_tokens, decoder_length), Ids{truncated ? 1 : 0},
           mask_of(encoder_tokens, encoder_length), mask_of(decoder_tokens, decoder_length)}};
}

}  // namespace

std::shared_ptr<const SourceDataset> make_t5_dataset(const SentenceSource& source,
                                                     const SourcePart& part,
                                                     const GptDatasetOptions& options,
                                                     std::vector<std::string>& warnings) {
  return std::make_shared<const T5Dataset>(source, part, options, warnings);
}

}  // namespace megatron
