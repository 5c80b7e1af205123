// The expected tokenizers are those of the real `tokenizers` package (make_training_fixtures.py).
#include "megatron/tokenizers/training/tokenizer_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "helpers.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"
#include "megatron/tokenizers/utf8.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

/// Returns the lines of a text with their ends.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

TrainedTokenizer train(const TokenizerTrainerOptions& options, const std::string& text,
                       std::size_t workers = 1) {
  TokenizerTrainer trainer(options, workers);
  const std::vector<std::string> lines = lines_of(text);
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      for (std::size_t i = worker; i < lines.size(); i += workers)
        trainer.add_text(worker, lines[i]);
    });
  for (std::thread& thread : threads) thread.join();
  return trainer.train({});
}

std::string text_of(const std::string& name) {
  return read_file(testing::fixture("training/" + name));
}

/// The options with the special tokens of a fixture.
TokenizerTrainerOptions options_with(std::vector<std::string> special_tokens) {
  TokenizerTrainerOptions options;
  options.special_tokens = std::move(special_tokens);
  return options;
}

TEST(TokenizerTrainer, WritesThePackagesByteLevelBpe) {
  TokenizerTrainerOptions options = options_with({"<|endoftext|>", "the"});
  options.vocab_size = 320;
  options.min_frequency = 3;
  const TrainedTokenizer trained = train(options, text_of("words.txt"));
  EXPECT_EQ(trained.tokenizer_json, text_of("byte_bpe.json"));
  EXPECT_EQ(trained.vocab_size, 320);
}

TEST(TokenizerTrainer, MergesPairsAgainThatAKnownTokenMakesAnew) {
  TokenizerTrainerOptions options = options_with({"abc"});
  options.vocab_size = 330;
  EXPECT_EQ(train(options, text_of("few_letters.txt")).tokenizer_json,
            text_of("merged_twice.json"));
  options.max_token_length = 5;
  EXPECT_EQ(train(options, text_of("few_letters.txt")).tokenizer_json,
            text_of("short_tokens.json"));
}

TEST(TokenizerTrainer, TakesAPatternAndLimitsTheAlphabet) {
  TokenizerTrainerOptions options;
  options.vocab_size = 80;
  options.initial_alphabet = InitialAlphabet::text;
  options.limit_alphabet = 36;
  options.pre_tokenizer = R"(\p{L}+|\P{L})";
  EXPECT_EQ(train(options, text_of("words.txt")).tokenizer_json, text_of("own_pattern.json"));
}

TEST(TokenizerTrainer, WritesThePackagesWordPiece) {
  const std::string expected = text_of("wordpiece.json");
  const Json json = parse_json(expected, "wordpiece.json");
  std::vector<std::string> special_tokens;
  for (const Json& token : json.at("added_tokens"))
    special_tokens.push_back(token.at("content").get<std::string>());
  TokenizerTrainerOptions options = options_with(special_tokens);
  options.model = TrainedModel::wordpiece;
  options.vocab_size = 200;
  options.min_frequency = 2;
  EXPECT_EQ(train(options, text_of("words.txt")).tokenizer_json, expected);
}

/// The pieces of a Unigram model, without the characters, to which the package gives scores in a
/// random order when they are no pieces.
std::map<std::string, double> long_pieces(const std::string& json) {
  std::map<std::string, double> pieces;
  const Json root = parse_json(json, "tokenizer.json");
  for (const Json& piece : root.at("model").at("vocab")) {
    const auto text = piece.at(0).get<std::string>();
    if (count_characters(text) > 1) pieces.emplace(text, piece.at(1).get<double>());
  }
  return pieces;
}

TEST(TokenizerTrainer, WritesThePackagesUnigram) {
  TokenizerTrainerOptions options = options_with({"<s>", "</s>"});
  options.model = TrainedModel::unigram;
  options.vocab_size = 44;
  options.shrinking_factor = 0.8;
  const std::string trained = train(options, text_of("words.txt")).tokenizer_json;
  const auto expected = long_pieces(text_of("unigram.json")), found = long_pieces(trained);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [piece, score] : expected) {
    ASSERT_TRUE(found.contains(piece)) << piece;
    EXPECT_NEAR(found.at(piece), score, 1e-12 * std::abs(score)) << piece;  // rounding of sums
  }
  const Json root = parse_json(trained, "tokenizer.json");
  EXPECT_EQ(root.at("model").at("unk_id"), 0);
  EXPECT_EQ(root.at("model").at("vocab").size(), 44u);
  EXPECT_EQ(root.at("added_tokens").at(0).at("id"), 1);
}

TEST(TokenizerTrainer, GivesTheSameForAnyNumberOfThreads) {
  for (const TrainedModel model :
       {TrainedModel::byte_bpe, TrainedModel::wordpiece, TrainedModel::unigram}) {
    TokenizerTrainerOptions options;
    options.model = model;
    options.vocab_size = 300;
    const std::string once = train(options, text_of("words.txt"), 1).tokenizer_json;
    EXPECT_EQ(train(options, text_of("words.txt"), 3).tokenizer_json, once);
  }
}

TEST(TokenizerTrainer, WritesWhatOurOwnTokenizerReads) {
  const TemporaryFolder folder;
  for (const TrainedModel model :
       {TrainedModel::byte_bpe, TrainedModel::wordpiece, TrainedModel::unigram}) {
    TokenizerTrainerOptions options;
    options.model = model;
    options.vocab_size = 300;
    if (model != TrainedModel::wordpiece) options.special_tokens = {"<s>", "</s>"};
    const TrainedTokenizer trained = train(options, text_of("words.txt"));
    folder.write("tokenizer.json", trained.tokenizer_json);
    folder.write("tokenizer_config.json", trained.tokenizer_config_json);
    const HuggingFaceTokenizer tokenizer(folder.path());
    EXPECT_EQ(tokenizer.vocab_size(), trained.vocab_size);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("in the ning"), SpecialTokens::skip),
              "in the ning");
    if (model != TrainedModel::wordpiece) {
      EXPECT_EQ(tokenizer.eod(), tokenizer.find("</s>"));
      EXPECT_EQ(tokenizer.bos(), tokenizer.find("<s>"));
    } else {
      EXPECT_EQ(tokenizer.pad(), 0);
      EXPECT_EQ(tokenizer.unk(), 1);
    }
  }
}

TEST(TokenizerTrainer, NamesWhatIsWrong) {
  TokenizerTrainerOptions options;
  options.vocab_size = 255;
  EXPECT_THAT(message_of([&] { train(options, "text"); }),
              HasSubstr("--vocab-size 255 is too small: the special tokens and the alphabet are "
                        "256 tokens"));
  EXPECT_THAT(message_of([&] { train({}, ""); }), HasSubstr("there is no text to train on"));
  options.pre_tokenizer = "gpt3";
  EXPECT_THAT(message_of([&] { train(options, "text"); }), HasSubstr("'gpt3'"));
  options.pre_tokenizer = "bert";
  EXPECT_THAT(message_of([&] { train(options, "text"); }), HasSubstr("'bert'"));
  options = {};
  options.normalizer = "nfx";
  EXPECT_THAT(message_of([&] { train(options, "text"); }), HasSubstr("'nfx'"));
  options = {};
  options.model = TrainedModel::unigram;
  options.vocab_size = 4;  // <unk>, ▁, t, e, x
  EXPECT_THAT(message_of([&] { train(options, "text"); }), HasSubstr("are 5 tokens"));
}

}  // namespace
}  // namespace megatron
