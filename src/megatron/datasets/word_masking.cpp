#include "megatron/datasets/word_masking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {
namespace {

using Word = std::vector<std::size_t>;  ///< positions of a word's tokens

/// Returns numpy's sum of fewer than 128 numbers, which adds eight at a time.
double numpy_sum(std::span<const double> values) {
  std::size_t i = 0;
  double sum = 0;
  if (values.size() >= 8) {
    std::array<double, 8> parts;
    std::copy_n(values.begin(), 8, parts.begin());
    for (i = 8; i + 8 <= values.size(); i += 8)
      for (std::size_t k = 0; k < 8; ++k) parts[k] += values[i + k];
    sum = ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
          ((parts[4] + parts[5]) + (parts[6] + parts[7]));
  }
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

void normalize(std::vector<double>& values) {
  const double sum = numpy_sum(values);
  for (double& value : values) value /= sum;
}

/// Returns the probabilities of runs of 1, 2, … words: inverse to their length.
std::vector<double> ngram_probabilities(const MaskingOptions& options) {
  std::vector<double> probabilities;
  for (std::int64_t n = 1; n <= options.max_ngram; ++n)
    probabilities.push_back(1.0 / static_cast<double>(n));
  normalize(probabilities);
  if (options.longer_ngrams) std::ranges::reverse(probabilities);
  normalize(probabilities);
  return probabilities;
}

std::vector<Word> words_of(const std::vector<std::int64_t>& tokens, const MaskingOptions& options,
                           const MaskingTokens& special) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == special.cls || tokens[i] == special.sep) continue;
    const bool continues =
        special.tokenizer->token(static_cast<std::int32_t>(tokens[i])).starts_with("##");
    if (continues && options.whole_words && !words.empty()) {
      words.back().push_back(i);
    } else {
      words.push_back({i});
    }
  }
  return words;
}

/// Returns the positions of the longest run of at most `n` words from `first` on that has at most
/// `room` tokens; none if the first word alone has more.
Word run_of_words(const std::vector<Word>& words, std::size_t first, std::int64_t n, double room) {
  for (; n > 0; --n) {
    Word run;
    const std::size_t end = std::min(words.size(), first + static_cast<std::size_t>(n));
    for (std::size_t i = first; i < end; ++i)
      run.insert(run.end(), words[i].begin(), words[i].end());
    if (static_cast<double>(run.size()) <= room) return run;
  }
  return {};
}

}  // namespace

MaskingTokens masking_tokens(std::shared_ptr<const Tokenizer> tokenizer, std::int64_t extra_ids) {
  MaskingTokens tokens{.cls = tokenizer->find("[CLS]"),
                       .sep = tokenizer->find("[SEP]"),
                       .mask = tokenizer->find("[MASK]"),
                       .pad = tokenizer->pad(),
                       .bos = tokenizer->bos(),
                       .eos = tokenizer->eod(),
                       .vocab_size = tokenizer->vocab_size()};
  const auto sentinel = [&](std::int64_t i) { return tokenizer->find(sentinel_token(i)); };
  for (std::int64_t i = 0; sentinel(i) >= 0; ++i) tokens.sentinels.push_back(sentinel(i));
  if (tokens.sentinels.empty()) {
    tokens.sentinels.resize(static_cast<std::size_t>(extra_ids));
    std::iota(tokens.sentinels.begin(), tokens.sentinels.end(), tokens.vocab_size);
  }
  tokens.tokenizer = std::move(tokenizer);
  return tokens;
}

MaskedTokens mask_words(const std::vector<std::int64_t>& tokens, std::int64_t target_length,
                        const MaskingOptions& options, const MaskingTokens& special,
                        const DrawMask& draw_mask, RandomState& random) {
  const std::vector<Word> words = words_of(tokens, options, special);
  const double most = std::min(
      options.probability * static_cast<double>(target_length),
      std::max(1.0, std::nearbyint(static_cast<double>(tokens.size()) * options.probability)));
  const std::vector<double> probabilities = ngram_probabilities(options);
  std::vector<std::size_t> order(words.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(std::span(order));

  MaskedTokens masked{.tokens = tokens, .spans = {}};
  std::vector<bool> is_masked(tokens.size(), false);
  std::size_t count = 0;
  for (const std::size_t first : order) {
    if (static_cast<double>(count) >= most) break;
    const std::int64_t n = options.geometric
                               ? std::min(random.geometric(0.2), options.max_ngram)
                               : static_cast<std::int64_t>(random.choice(probabilities)) + 1;
    MaskedSpan span{.positions = run_of_words(words, first, n, most - static_cast<double>(count)),
                    .labels = {}};
    const bool overlaps =
        std::ranges::any_of(span.positions, [&](std::size_t i) { return is_masked[i]; });
    if (span.positions.empty() || overlaps) continue;
    for (const std::size_t i : span.positions) {
      is_masked[i] = true;
      masked.tokens[i] = draw_mask(random).value_or(tokens[i]);
      span.labels.push_back(tokens[i]);
    }
    count += span.positions.size();
    masked.spans.push_back(std::move(span));
  }
  std::ranges::sort(masked.spans, {}, [](const MaskedSpan& span) { return span.positions[0]; });
  return masked;
}

}  // namespace megatron
