#include "megatron/tokenizers/training/tokenizer_trainer.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/training/bpe_trainer.h"
#include "megatron/tokenizers/training/trained_files.h"
#include "megatron/tokenizers/training/unigram_trainer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Returns the characters that write the 256 bytes.
std::vector<char32_t> byte_alphabet() {
  std::string bytes, text;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  append_byte_level(text, bytes);
  std::vector<char32_t> characters;
  for (std::size_t i = 0; i < text.size();) characters.push_back(next_code_point(text, i));
  return characters;
}

BpeTrainerOptions bpe_options(const TokenizerTrainerOptions& options,
                              const TrainingProgress& progress) {
  const bool is_byte_level = options.model == TrainedModel::byte_bpe;
  BpeTrainerOptions result{.vocab_size = *options.vocab_size,
                           .min_frequency = options.min_frequency,
                           .special_tokens = *options.special_tokens,
                           .limit_alphabet = options.limit_alphabet,
                           .max_token_length = options.max_token_length};
  if (!is_byte_level) result.continuing_subword_prefix = options.continuing_subword_prefix;
  if (is_byte_level && options.initial_alphabet == InitialAlphabet::bytes)
    result.initial_alphabet = byte_alphabet();
  if (progress)
    result.progress = [&progress, total = *options.vocab_size](std::int64_t tokens) {
      progress("merging", tokens, total);
    };
  return result;
}

UnigramTrainerOptions unigram_options(const TokenizerTrainerOptions& options, std::size_t workers,
                                      const TrainingProgress& progress) {
  UnigramTrainerOptions result{.vocab_size = *options.vocab_size,
                               .special_tokens = *options.special_tokens,
                               .unk_token = options.unk_token,
                               .shrinking_factor = options.shrinking_factor,
                               .n_sub_iterations = options.n_sub_iterations,
                               .max_piece_length = options.max_piece_length,
                               .seed_size = options.seed_size,
                               .workers = static_cast<std::int64_t>(workers)};
  if (progress)
    result.progress = [&progress](std::int64_t done, std::int64_t total) {
      progress("EM", done, total);
    };
  return result;
}

/// Returns JSON without the order of its keys.
Json unordered(const JsonText& json) { return Json::parse(json.dump()); }

}  // namespace

TokenizerTrainer::TokenizerTrainer(TokenizerTrainerOptions options, std::size_t workers)
    : options_(with_defaults(std::move(options))),
      counter_(unordered(normalizer_component(options_)),
               unordered(pre_tokenizer_component(options_))),
      counts_(workers) {}

void TokenizerTrainer::add_text(std::size_t worker, std::string_view text) {
  counter_.count(text, counts_[worker]);
}

TrainedTokenizer TokenizerTrainer::train(const TrainingProgress& progress) {
  WordCounts all = std::move(counts_[0]);
  for (std::size_t worker = 1; worker < counts_.size(); ++worker) {
    all.merge(counts_[worker]);
    counts_[worker] = {};
  }
  if (all.size() == 0)
    throw UserError({"there is no text to train on", "", "check the files and --json-keys"});
  all = counter_.finish(std::move(all));
  const std::vector<CountedWord> words = all.words();
  TrainedTokenizer result{.tokenizer_config_json = tokenizer_config_json(options_),
                          .words = all.total(),
                          .distinct_words = static_cast<std::int64_t>(words.size())};
  if (options_.model == TrainedModel::unigram) {
    const TrainedUnigram model =
        train_unigram(words, unigram_options(options_, counts_.size(), progress));
    result.vocab_size = static_cast<std::int64_t>(model.pieces.size());
    result.tokenizer_json = tokenizer_json(options_, model);
  } else {
    const TrainedBpe model = train_bpe(words, bpe_options(options_, progress));
    result.vocab_size = static_cast<std::int64_t>(model.tokens.size());
    result.tokenizer_json = tokenizer_json(options_, model);
  }
  return result;
}

}  // namespace megatron
