#include "megatron/datasets/fim.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/data_config.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

std::int64_t token_id(const Tokenizer& tokenizer, const char* flag, const std::string& token) {
  const std::int32_t id = tokenizer.find(token);
  if (id < 0)
    throw UserError({std::string(flag) + " " + token + ": the tokenizer has no such token",
                     std::string(tokenizer.name()),
                     "give a token of the vocabulary, or add this one to the tokenizer"});
  return id;
}

/// Calls `part` for the parts of `ids` that `separator` ends, without it, and `last` for the rest.
/// Empty parts are left out together with their separator.
template <class Part, class Last>
void split_at(std::span<const std::int64_t> ids, std::int64_t separator, Part&& part, Last&& last) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != separator) continue;
    if (i > begin) part(ids.subspan(begin, i - begin));
    begin = i + 1;
  }
  last(ids.subspan(begin));
}

}  // namespace

FillInTheMiddle::FillInTheMiddle(const FimConfig& config,
                                 std::shared_ptr<const Tokenizer> tokenizer)
    : config_(config), tokenizer_(std::move(tokenizer)) {
  MEGATRON_CHECK(tokenizer_ != nullptr, "fill-in-the-middle needs a tokenizer");
  const auto id = [&](const char* flag, const std::string& token) {
    return token_id(*tokenizer_, flag, token);
  };
  prefix_ = id("--fim-prefix-token", config.fim_prefix_token);
  middle_ = id("--fim-middle-token", config.fim_middle_token);
  suffix_ = id("--fim-suffix-token", config.fim_suffix_token);
  pad_ = id("--fim-pad-token", config.fim_pad_token);
  eod_ = id("--fim-eod-token", config.fim_eod_token);
  if (!config.fim_split_sample.empty())
    fragment_separator_ = id("--fim-split-sample", config.fim_split_sample);
}

std::vector<std::int64_t> FillInTheMiddle::apply(std::span<const std::int64_t> sample,
                                                 RandomState& random) const {
  Ids out;
  out.reserve(sample.size() + 8);
  split_at(
      sample, eod_,
      [&](std::span<const std::int64_t> document) {
        append_document(document, random, out);
        out.push_back(eod_);
      },
      [&](std::span<const std::int64_t> document) { append_document(document, random, out); });
  out.resize(sample.size(), pad_);
  return out;
}

void FillInTheMiddle::append_document(std::span<const std::int64_t> document, RandomState& random,
                                      Ids& out) const {
  if (fragment_separator_ < 0 || std::ranges::find(document, fragment_separator_) == document.end())
    return append_piece(document, config_.fim_rate, random, out);
  if (!random.bernoulli(config_.fim_rate)) {
    out.insert(out.end(), document.begin(), document.end());
    return;
  }
  const double rate = config_.fim_fragment_rate.value_or(0);
  split_at(
      document, fragment_separator_,
      [&](std::span<const std::int64_t> fragment) {
        append_piece(fragment, rate, random, out);
        out.push_back(fragment_separator_);
      },
      [&](std::span<const std::int64_t> fragment) { append_piece(fragment, rate, random, out); });
}

void FillInTheMiddle::append_piece(std::span<const std::int64_t> piece, double rate,
                                   RandomState& random, Ids& out) const {
  const auto keep = [&] { out.insert(out.end(), piece.begin(), piece.end()); };
  if (!random.bernoulli(rate)) return keep();
  std::vector<std::int32_t> ids;
  for (const std::int64_t id : piece) ids.push_back(static_cast<std::int32_t>(id));
  std::string text = tokenizer_->decode(ids, SpecialTokens::skip);
  if (auto replaced = replace_invalid_utf8(text)) text = *std::move(replaced);
  if (!config_.fim_no_prefix.empty() && text.starts_with(config_.fim_no_prefix)) return keep();

  const std::vector<std::size_t> starts = character_starts(text);
  std::array<std::size_t, 2> cuts{random.interval(starts.size() - 1),
                                  random.interval(starts.size() - 1)};
  if (cuts[0] > cuts[1]) std::swap(cuts[0], cuts[1]);
  const std::size_t begin = starts[cuts[0]], end = starts[cuts[1]];
  const std::vector<std::int32_t> prefix =
                                      tokenizer_->encode(std::string_view(text).substr(0, begin)),
                                  middle = tokenizer_->encode(
                                      std::string_view(text).substr(begin, end - begin)),
                                  suffix = tokenizer_->encode(std::string_view(text).substr(end));
  const auto append = [&](const std::vector<std::int32_t>& part) {
    out.insert(out.end(), part.begin(), part.end());
  };
  const bool suffix_first = random.bernoulli(config_.fim_spm_rate);
  out.push_back(prefix_);
  if (!suffix_first) append(prefix);
  out.push_back(suffix_);
  append(suffix);
  out.push_back(middle_);
  if (suffix_first) append(prefix);
  append(middle);
}

RandomState fim_random(std::int64_t seed, std::int64_t index) {
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const std::array words{word(seed), word(index), word(index >> 32)};
  return RandomState(words);
}

}  // namespace megatron
