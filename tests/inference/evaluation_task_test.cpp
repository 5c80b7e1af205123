#include "megatron/inference/evaluation/evaluation_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/evaluation/detokenize.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

LoadedTokenizer tokenizer(const std::string& type) {
  TokenizerConfig config;
  config.tokenizer_type = type;
  if (type == "NullTokenizer") config.vocab_size = 100;
  LoadedTokenizer loaded;
  loaded.tokenizer = make_tokenizer(config);
  return loaded;
}

class Tasks : public testing::Test {
 protected:
  /// Returns the bytes of a text as ids.
  static Ids bytes(const std::string& text) {
    Ids ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  const LoadedTokenizer bytes_ = tokenizer("ByteTokenizer"), words_ = tokenizer("NullTokenizer");
  const TaskReader reader_{bytes_, kNoLimit}, word_reader_{words_, kNoLimit};
};

TEST(MeanMetric, HasTheStandardErrorOfASample) {
  const Metric metric = mean_metric("acc", {1, 0, 0, 1, 1});
  EXPECT_DOUBLE_EQ(metric.value, 0.6);
  // lm_eval.api.metrics.mean_stderr: sqrt(Σ (x − mean)² / (n − 1)) / sqrt(n)
  EXPECT_DOUBLE_EQ(metric.standard_error.value(), std::sqrt(0.6 * 0.4 / 4));
  EXPECT_FALSE(mean_metric("acc", {1}).standard_error);
}

TEST_F(Tasks, ChoicesFollowTheQueryAndASpace) {
  const EvaluationTask task = reader_.lines(
      "a.jsonl",
      "{\"query\": \"ab \", \"choices\": [\"x\", \"yé\"], \"gold\": 1}\n\n"
      "{\"query\": \"\", \"choices\": [\"z\"], \"gold\": \"z\", \"target_delimiter\": \"\"}\n");
  EXPECT_EQ(task.name, "a.jsonl");
  EXPECT_EQ(task.num_examples, 2);
  ASSERT_EQ(task.texts.size(), 3u);
  EXPECT_EQ(task.texts[0].ids, bytes("ab  x"));
  EXPECT_EQ(task.texts[0].num_targets, 3) << "the space that ends the query is a target";
  EXPECT_EQ(task.texts[1].ids, bytes("ab  yé"));
  EXPECT_EQ(task.texts[1].source, "a.jsonl, line 1");
  EXPECT_EQ(task.texts[2].ids, (Ids{bytes_.tokenizer->eod(), 'z'}))
      << "behind what begins a document";
  EXPECT_EQ(task.texts[2].num_targets, 1);
}

TEST_F(Tasks, AccuracyComparesLogProbabilitiesAndThoseOfACharacter) {
  const EvaluationTask task =
      reader_.lines("a.jsonl",
                    "{\"query\": \"q\", \"choices\": [\"é\", \"four\"], \"gold\": 1}\n"
                    "{\"query\": \"q\", \"choices\": [\"aa\", \"bb\", \"cc\"], \"gold\": 0}\n");
  // Per character −1 and −0.75; then a tie, of which the first counts.
  const std::vector<Metric> metrics =
      task.metrics(std::vector<TextScore>{{-1}, {-3}, {-2}, {-2}, {-5}});
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].name, "acc");
  EXPECT_EQ(metrics[0].value, 0.5);
  EXPECT_DOUBLE_EQ(metrics[0].standard_error.value(), 0.5);
  EXPECT_EQ(metrics[1].name, "acc_norm");
  EXPECT_EQ(metrics[1].value, 1);
  EXPECT_EQ(metrics[1].standard_error.value(), 0);
}

TEST_F(Tasks, ContinuationsHavePerplexityAndGreedyAccuracy) {
  const EvaluationTask task = reader_.lines("a.jsonl",
                                            "{\"context\": \"ab\", \"continuation\": \"cd\"}\n"
                                            "{\"context\": \"a\", \"continuation\": \"b\"}\n");
  EXPECT_EQ(task.texts[0].ids, bytes("abcd"));
  EXPECT_EQ(task.texts[0].num_targets, 2);
  const std::vector<Metric> metrics = task.metrics(std::vector<TextScore>{{-1, true}, {-3, false}});
  EXPECT_EQ(metrics[0].name, "perplexity");
  EXPECT_DOUBLE_EQ(metrics[0].value, std::exp(2.0));
  EXPECT_EQ(metrics[1].value, 0.5);
}

TEST_F(Tasks, TheLastWordOfATextIsPredicted) {
  const EvaluationTask task =
      reader_.lines("a.jsonl", "{\"text\": \"the cat sat\"}\n{\"text\": \"one\"}\n");
  EXPECT_EQ(task.texts[0].ids, bytes("the cat sat"));
  EXPECT_EQ(task.texts[0].num_targets, 4) << "with the space";
  EXPECT_EQ(task.texts[1].num_targets, 4);
  EXPECT_EQ(task.metrics(std::vector<TextScore>{{-1, true}, {-1, true}})[1].value, 1);
}

TEST_F(Tasks, LongContextsLoseTheirBeginning) {
  const TaskReader reader(bytes_, 3);
  const EvaluationTask task =
      reader.lines("a.jsonl", "{\"context\": \"abcdef\", \"continuation\": \"gh\"}\n");
  EXPECT_EQ(task.texts[0].ids, bytes("efgh")) << "the last token needs no position";
  EXPECT_EQ(task.num_cut, 1);
  EXPECT_THAT(message_of([&] {
                reader.lines("a.jsonl", "{\"context\": \"a\", \"continuation\": \"bcde\"}\n");
              }),
              HasSubstr("a.jsonl, line 1: the continuation has 4 tokens"));
}

/// As lm-evaluation-harness asks models of AutoModelForSeq2SeqLM.
TEST_F(Tasks, AnEncoderReadsTheContext) {
  LoadedTokenizer t5 = tokenizer("ByteTokenizer");
  t5.decoder_start = 7;
  t5.encoder_end = 1;
  const EvaluationTask task =
      TaskReader(t5, kNoLimit)
          .lines(
              "a.jsonl",
              "{\"query\": \"ab \", \"choices\": [\"x\"], \"gold\": 0}\n"
              "{\"query\": \"\", \"choices\": [\"z\"], \"gold\": 0, \"target_delimiter\": \"\"}\n");
  EXPECT_EQ(task.texts[0].encoded, (Ids{'a', 'b', 1}));
  EXPECT_EQ(task.texts[0].ids, (Ids{7, ' ', ' ', 'x'}));
  EXPECT_EQ(task.texts[0].num_targets, 3);
  EXPECT_EQ(task.texts[1].encoded, (Ids{t5.tokenizer->eod(), 1}));
  EXPECT_EQ(task.texts[1].ids, (Ids{7, 'z'}));
  const TaskReader reader(t5, 3);
  const EvaluationTask cut =
      reader.lines("a.jsonl", "{\"context\": \"abcdef\", \"continuation\": \"ghi\"}\n");
  EXPECT_EQ(cut.texts[0].encoded, (Ids{'e', 'f', 1}));
  EXPECT_EQ(cut.texts[0].ids, (Ids{7, 'g', 'h', 'i'}));
  EXPECT_EQ(cut.num_cut, 1);
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"{\"context\": \"a\", \"continuation\": \"bcde\"}", "the continuation has 4 tokens"},
           {"{\"context\": \"a\", \"continuation\": \"\"}", "the continuation adds no token"}})
    EXPECT_THAT(message_of([&, line = line] { reader.lines("a.jsonl", line); }), HasSubstr(why));
  EXPECT_THAT(message_of([&] { reader.lambada("l.jsonl", "{\"text\": \"a b\"}", false); }),
              HasSubstr("--task LAMBADA: its texts have no context"));
  EXPECT_THAT(message_of([&] { reader.wikitext("w.txt", "a b c", 3, 1); }),
              HasSubstr("--task WIKITEXT103: its texts have no context"));
}

TEST_F(Tasks, MistakesNameTheLine) {
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {"\n \t\n", "--task a.jsonl: contains no example"},
           {"{\"text\"", "a.jsonl, line 1: not valid JSON"},
           {"{\"query\": \"a\"}", "a.jsonl, line 1: field 'text' is missing"},
           {"{\"text\": \"a b\"}\n{\"context\": \"a\", \"continuation\": \"b\"}",
            "a.jsonl, line 2: field 'text' is missing"},
           {"{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 1}",
            "a.jsonl, line 1: field 'gold': 1"},
           {"{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": \"c\"}", "field 'gold': \"c\""},
           {"{\"context\": \"a\", \"continuation\": \"\"}", "the continuation adds no token"}})
    EXPECT_THAT(message_of([&, content = content] { reader_.lines("a.jsonl", content); }),
                HasSubstr(text))
        << content;
}

TEST_F(Tasks, LambadaPredictsTheLastTokenOrWord) {
  const std::string content = "{\"text\": \"sat on the  mat \"}\n";
  const EvaluationTask token = reader_.lambada("l.jsonl", content, /*strict=*/false),
                       word = reader_.lambada("l.jsonl", content, /*strict=*/true);
  EXPECT_EQ(token.texts[0].ids, bytes("sat on the  mat "));
  EXPECT_EQ(token.texts[0].num_targets, 1);
  EXPECT_EQ(word.texts[0].ids, bytes("sat on the mat"));
  EXPECT_EQ(word.texts[0].num_targets, 4);
  EXPECT_EQ(word.metrics(std::vector<TextScore>{{-1, true}})[0].value, 1);
  EXPECT_THAT(message_of([&] { reader_.lambada("l.jsonl", "{\"text\": \"\"}", true); }),
              HasSubstr("l.jsonl, line 1"));
  EXPECT_THAT(message_of([&] { reader_.lambada("l.jsonl", "", true); }),
              HasSubstr("contains no example"));
}

TEST_F(Tasks, LongTextsOfLambadaLoseTheirBeginning) {
  const TaskReader reader(bytes_, 6);
  const std::string content = "{\"text\": \"sat on mat\"}\n{\"text\": \"a mat\"}\n";
  for (const bool strict : {false, true}) {
    const EvaluationTask task = reader.lambada("l.jsonl", content, strict);
    EXPECT_EQ(task.texts[0].ids, bytes(" on mat"));
    EXPECT_EQ(task.texts[0].num_targets, strict ? 4 : 1);
    EXPECT_EQ(task.texts[1].ids, bytes("a mat"));
    EXPECT_EQ(task.num_cut, 1);
  }
  EXPECT_THAT(message_of([&] { reader.lambada("l.jsonl", "{\"text\": \"a longest\"}", true); }),
              HasSubstr("l.jsonl, line 1: the continuation has 8 tokens"));
}

/// The targets that Megatron-LM's _LMDataset (tasks/zeroshot_gpt/datasets.py) scores: the begins of
/// windows, and places of tokens.
std::vector<std::pair<std::int64_t, Ids>> megatron_windows(std::int64_t num_tokens,
                                                           std::int64_t seq_len,
                                                           std::int64_t overlap) {
  const std::int64_t targets = std::max<std::int64_t>(num_tokens - 1 - overlap, 0);
  const std::int64_t total = std::max<std::int64_t>((targets + overlap - 1) / overlap + 1, 1);
  std::vector<std::pair<std::int64_t, Ids>> windows;
  for (std::int64_t i = 0; i < total; ++i) {
    const std::int64_t begin = i * overlap;
    Ids scored;
    for (std::int64_t label = 0; label < seq_len; ++label) {
      const bool is_there = begin + label + 1 < num_tokens;
      const bool is_masked = overlap != seq_len && i != 0 && label < seq_len - overlap;
      if (is_there && !is_masked) scored.push_back(begin + label + 1);
    }
    if (!scored.empty()) windows.emplace_back(begin, scored);
  }
  return windows;
}

TEST_F(Tasks, WindowsAreThoseOfMegatron) {
  for (std::int64_t num_tokens = 2; num_tokens <= 30; ++num_tokens) {
    std::string content = "0";
    for (std::int64_t i = 1; i < num_tokens; ++i) content += " " + std::to_string(i);
    for (const auto& [length, stride] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {8, 8}, {8, 3}, {8, 1}, {5, 4}, {1, 1}, {40, 32}}) {
      const EvaluationTask task = word_reader_.wikitext("t.txt", content, length, stride);
      const auto windows = megatron_windows(num_tokens, length, stride);
      ASSERT_EQ(task.texts.size(), windows.size()) << num_tokens << " " << length << " " << stride;
      for (std::size_t i = 0; i < windows.size(); ++i) {
        const Ids& ids = task.texts[i].ids;  // equal to the places of the tokens
        EXPECT_EQ(ids.front(), windows[i].first);
        EXPECT_EQ(Ids(ids.end() - task.texts[i].num_targets, ids.end()), windows[i].second);
      }
    }
  }
}

TEST_F(Tasks, PerplexityIsAdjustedToWords) {
  // Five bytes, three words: "a b c".
  const EvaluationTask task = reader_.wikitext("t.txt", "a b c", 8, 8);
  const std::vector<Metric> metrics = task.metrics(std::vector<TextScore>{{-6}});
  ASSERT_EQ(metrics.size(), 4u);
  EXPECT_DOUBLE_EQ(metrics[0].value, 1.5);            // avg loss of four tokens
  EXPECT_DOUBLE_EQ(metrics[1].value, std::exp(1.5));  // ppl
  EXPECT_DOUBLE_EQ(metrics[2].value, std::exp(3.0));  // adjusted ppl
  EXPECT_DOUBLE_EQ(metrics[3].value, 2);              // token ratio: (5 − 1) / (3 − 1)
  EXPECT_DOUBLE_EQ(task.metrics(std::vector<TextScore>{{-100}})[1].value, std::exp(20.0));
  EXPECT_THAT(message_of([&] { reader_.wikitext("t.txt", "a", 8, 8); }), HasSubstr("too short"));
}

// Expected values are the results of Megatron-LM's functions.
TEST(Detokenized, UndoesWhatADataSetDid) {
  EXPECT_EQ(
      detokenized("wiki.test.tokens",
                  " = Homarus = \n \n the players ' \" big , 3 @.@ 5 @-@ inch \" ( or ( 1 @,@ "
                  "000 ) ) lobster 's [ a ] { } 90 ° N said : \" no ! \" ; it 's ' x ' = = = "
                  "= N days ; \n"),
      " = Homarus =\n\nthe players'\"big, 3.5-inch\" (or ( 1,000) ) lobster's [a] {} 90°N "
      "said: \"no!\"; it's' x ' ==== 1 days;\n");
  EXPECT_EQ(detokenized("ptb.txt", " he did n't pay $ N million \n the company 's # N plan \n"),
            " he didn't pay $1 million\nthe company's #1 plan\n");
  EXPECT_EQ(detokenized("lambada.txt", " a , b "), " a , b ");
}

}  // namespace
}  // namespace megatron
