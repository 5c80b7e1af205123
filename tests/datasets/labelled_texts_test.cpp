// Labelled texts of all formats, and their samples. Expected tokens are those of Megatron-LM's
// build_tokens_types_paddings_from_ids(), by hand.
#include "megatron/datasets/labelled_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "megatron/base/error.h"
#include "megatron/config/data_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/builder.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

// Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, a 5, b 6, c 7, d 8.
constexpr const char* kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n";

class LabelledTextFiles : public ::testing::Test {
 protected:
  LabelledTextFiles() {
    TokenizerConfig config;
    config.tokenizer_type = "BertWordPieceLowerCase";
    config.vocab_file = folder_.write("vocab.txt", kVocabulary);
    tokenizer_ = make_tokenizer(config);
  }
  DataConfig config(const std::string& name, const std::string& text,
                    FinetuneTask task = FinetuneTask::classify) {
    DataConfig config;
    config.task = task;
    config.train_data_path = {folder_.write(name, text)};
    return config;
  }
  LabelledData read(const std::string& name, const std::string& text,
                    FinetuneTask task = FinetuneTask::classify) {
    return read_labelled_data(config(name, text, task));
  }
  static const LabelledTexts& texts(const LabelledData& data) {
    return *data.files.begin()->second;
  }
  std::string mistake(const std::string& name, const std::string& text,
                      FinetuneTask task = FinetuneTask::classify) {
    return message_of([&] { read(name, text, task); });
  }
  Datasets build(const DataConfig& config, std::int64_t num_samples, std::int64_t length = 8,
                 std::int64_t num_classes = 0) const {
    return build_datasets(
        config, {.sequence_length = length,
                 .num_samples = {num_samples, 0, 0},
                 .tokenizer = {.vocab_size = tokenizer_->vocab_size(), .text = tokenizer_},
                 .kind = SampleKind::labelled,
                 .masked = {.tokens = masking_tokens(tokenizer_, 0), .num_classes = num_classes}});
  }

  TemporaryFolder folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(LabelledTextFiles, JsonLinesHaveTextsAndClasses) {
  const LabelledData numbers = read("a.jsonl", R"({"text":"a b","label":2})"
                                               "\n\n"
                                               R"({"sentence1":"c","sentence2":"d","label":"0"})"
                                               "\n");
  EXPECT_EQ(numbers.num_classes, 3);
  EXPECT_TRUE(numbers.classes.empty());
  ASSERT_EQ(texts(numbers).size(), 2u);
  EXPECT_EQ(texts(numbers)[0].text, "a b");
  EXPECT_EQ(texts(numbers)[0].number, 2);
  EXPECT_EQ(texts(numbers)[1].others.front(), "d");
  EXPECT_THAT(texts(numbers)[1].where, testing::EndsWith("a.jsonl:3"));

  const LabelledData named = read("b.jsonl", R"({"sentence":"a","label":"pos"})"
                                             "\n"
                                             R"({"sentence":"b","label":"neg"})"
                                             "\r\n"
                                             R"({"premise":"c","hypothesis":"d","label":"pos"})");
  EXPECT_THAT(named.classes, ElementsAre("neg", "pos"));
  EXPECT_EQ(texts(named)[0].number, 1);
  EXPECT_EQ(texts(named)[1].number, 0);
  EXPECT_EQ(texts(named)[2].others.front(), "d");
}

TEST_F(LabelledTextFiles, TablesHaveTheColumnsOfGlue) {
  const std::string header =
      "index\tpromptID\tpairID\tgenre\tb1\tb2\tp1\tp2\tsentence1\tsentence2\tlabel1\tgold_label\n";
  const LabelledData mnli =
      read("mnli.tsv", header + "0\t1\t2\tx\t-\t-\t-\t-\ta b\tc\tneutral\tentailment\n",
           FinetuneTask::mnli);
  EXPECT_THAT(mnli.classes, ElementsAre("contradiction", "entailment", "neutral"));
  EXPECT_EQ(mnli.num_classes, 3);
  EXPECT_EQ(texts(mnli)[0].text, "a b");
  EXPECT_EQ(texts(mnli)[0].others.front(), "c");
  EXPECT_EQ(texts(mnli)[0].number, 1);
  EXPECT_THAT(
      mistake("mnli.tsv", header + "0\t1\t2\tx\t-\t-\t-\t-\ta\tc\t-\thidden\n", FinetuneTask::mnli),
      HasSubstr("mnli.tsv:2: the label is 'hidden'"));

  const LabelledData qqp = read("qqp.tsv",
                                "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                                "1\t2\t3\ta \"b\t c \t1\n"
                                "1\t2\t3\tbroken\n"
                                "1\t2\t3\t\tc\t0\n"
                                "4\t5\t6\ta\tb\t0\n",
                                FinetuneTask::qqp);
  ASSERT_EQ(texts(qqp).size(), 2u);
  EXPECT_EQ(texts(qqp)[0].text, "a \"b");
  EXPECT_EQ(texts(qqp)[0].number, 1);
  EXPECT_EQ(qqp.num_classes, 2);
  EXPECT_THAT(qqp.warnings, ElementsAre(HasSubstr("2 lines without a text")));
  // Row numbers have no name, and the last cell of a row may be empty.
  const LabelledData frame =
      read("frame.tsv", "\tsentence\tlabel\tnote\n0\ta b\t1\t\n1\tc\t0\tx\r\n");
  ASSERT_EQ(texts(frame).size(), 2u);
  EXPECT_EQ(texts(frame)[0].text, "a b");
  EXPECT_THAT(texts(frame)[0].others, testing::IsEmpty());
  EXPECT_EQ(texts(frame)[1].number, 0);
  EXPECT_THAT(frame.warnings, testing::IsEmpty());
  // As spreadsheets write them: a byte order mark, and lines that end in CR LF.
  const LabelledData sheet = read("sheet.tsv", "\xef\xbb\xbfsentence\tlabel\r\na b\t1\r\nc\t0\r\n");
  ASSERT_EQ(texts(sheet).size(), 2u);
  EXPECT_EQ(texts(sheet)[0].number, 1);
  EXPECT_EQ(sheet.num_classes, 2);
  EXPECT_THAT(mistake("test.tsv", "id\tquestion1\tquestion2\n1\ta\tb\n", FinetuneTask::qqp),
              HasSubstr("holds no labelled text"));
}

TEST_F(LabelledTextFiles, ChoicesAreNumbersOrLetters) {
  const LabelledData data = read("a.jsonl",
                                 R"({"question":"a","choices":["b","c","d"],"label":2})"
                                 "\n"
                                 R"({"text":"b","choices":["b","c","d"],"label":"B"})",
                                 FinetuneTask::rank);
  EXPECT_EQ(data.num_choices, 3);
  EXPECT_EQ(data.num_classes, 1);
  EXPECT_EQ(texts(data)[0].number, 2);
  EXPECT_EQ(texts(data)[1].number, 1);
  EXPECT_THAT(
      mistake("b.jsonl", R"({"text":"b","choices":["b","c"],"label":2})", FinetuneTask::rank),
      HasSubstr("b.jsonl:1: the label is '2'"));
  EXPECT_THAT(mistake("c.jsonl",
                      R"({"text":"b","choices":["b","c"],"label":0})"
                      "\n"
                      R"({"text":"b","choices":["b","c","d"],"label":0})",
                      FinetuneTask::rank),
              HasSubstr("c.jsonl:2: has 3 choices"));
}

/// The answer fills the blank of a question, or follows it.
TEST_F(LabelledTextFiles, FoldersHaveTheQuestionsOfRace) {
  DataConfig config;
  config.task = FinetuneTask::race;
  std::filesystem::create_directory(folder_ / "high");
  folder_.write("high/2.txt",
                R"({"article":"c","questions":["a _ b","a?"],"options":[["w","x","y","z"],)"
                R"(["w","x","y","z"]],"answers":["B","D"],"id":"high1.txt"})");
  folder_.write("high/1.txt", R"({"article":"d","questions":[],"options":[],"answers":[]})");
  folder_.write("high/note.md", "not read");
  config.train_data_path = {(folder_.path() / "high").string()};
  const LabelledData data = read_labelled_data(config);
  ASSERT_EQ(texts(data).size(), 2u);
  EXPECT_EQ(data.num_choices, 4);
  EXPECT_THAT(texts(data)[0].others, ElementsAre("a w b", "a x b", "a y b", "a z b"));
  EXPECT_EQ(texts(data)[0].number, 1);
  EXPECT_EQ(texts(data)[1].others[3], "a? z");
  EXPECT_EQ(texts(data)[1].text, "c");
  EXPECT_EQ(texts(data)[1].number, 3);
  EXPECT_TRUE(texts(data)[1].others_come_first);
  folder_.write("high/3.txt", R"({"article":"d","questions":["a"],"options":[],"answers":[]})");
  EXPECT_THAT(message_of([&] { read_labelled_data(config); }),
              HasSubstr("3.txt:1: has not as many questions"));
}

TEST_F(LabelledTextFiles, MistakesNameFileAndLine) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {R"({"text":"a"})", "x.jsonl:1: has no text or no label"},
           {R"({"label":1})", "x.jsonl:1: has no text or no label"},
           {R"({"text":"","label":1})", "x.jsonl:1: has no text or no label"},
           {R"({"text":7,"label":1})", "x.jsonl:1"},
           {R"({"text":"a","label":1.5})", "x.jsonl:1"},
           {R"({"text":"a","label":true})", "x.jsonl:1"},
           {R"({"text":"a","label":-1})", "x.jsonl:1: the label is '-1'"},
           {R"({"text":"a","label":9999999})", "x.jsonl:1: the label is '9999999'"},
           {"7", "x.jsonl:1"},
           {"{", "x.jsonl:1"},
           {"", "x.jsonl: holds no labelled text"},
           {"\n \n", "x.jsonl: holds no labelled text"}})
    EXPECT_THAT(mistake("x.jsonl", text), HasSubstr(reason)) << text;
  EXPECT_THAT(mistake("x.tsv", "a\tb\n1\t2\n"), HasSubstr("x.tsv: holds no labelled text"));
  EXPECT_THAT(mistake("x.jsonl", R"({"question":"a","choices":["b","c"],"label":0})"),
              HasSubstr("x.jsonl:1: has choices"));
  EXPECT_THAT(mistake("x.jsonl", R"({"text":"a","label":0})", FinetuneTask::rank),
              HasSubstr("choices"));
  DataConfig none;
  none.task = FinetuneTask::classify;
  EXPECT_EQ(message_of([&] { read_labelled_data(none); }),
            "--task: has no labelled texts to train on\n"
            "  fix: add --train-data FILE, and --valid-data FILE to measure the accuracy");
}

/// Any bytes are read, or a mistake names the file.
TEST_F(LabelledTextFiles, RandomDamageIsReadOrNamed) {
  const std::string json = R"({"text":"a b","label":"B","choices":["c","d"],"questions":["a"],)"
                           R"("article":"b","options":[["a","b"]],"answers":["A"]})"
                           "\n",
                    table = "text\tlabel\na b\t1\n\xff\t2\n";
  const std::vector<std::string> inserts{
      "\n", "\t", "\"", "[", "}", "null", "\xed\xa0\x80", "9", std::string(1, '\0')};
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = i % 2 == 0 ? json + json : table + table;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text.insert(at, inserts[random() % inserts.size()]);
      else
        text.erase(at, 1 + random() % 8);
    }
    const FinetuneTask task = i % 4 < 2 ? FinetuneTask::classify : FinetuneTask::rank;
    try {
      read(i % 2 == 0 ? "x.jsonl" : "x.tsv", text, task);
    } catch (const UserError& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr("/x.")) << text;
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(LabelledTextFiles, SamplesHaveTheTokensOfMegatron) {
  const Datasets datasets =
      build(config("a.jsonl", R"({"sentence1":"a b","sentence2":"c d","label":1})"), 1);
  const Sample sample = datasets.train()->sample(0);
  EXPECT_EQ(sample.get("tokens"), (Ids{2, 5, 6, 3, 7, 8, 3, 0}));
  EXPECT_EQ(sample.get("types"), (Ids{0, 0, 0, 0, 1, 1, 1, 0}));
  EXPECT_EQ(sample.get("position_ids"), (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sample.get<std::int32_t>("document_ids"),
            (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(sample.get<float>("loss_mask"), (std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sample.get("class"), Ids{1});
  EXPECT_EQ(sample.padding, Ids{7});
}

TEST_F(LabelledTextFiles, LongTextsAreCutBeforeTheLastSeparator) {
  const DataConfig pair = config("a.jsonl", R"({"sentence1":"a b c","sentence2":"d d","label":0})");
  const Sample cut = build(pair, 1, 6).train()->sample(0);
  EXPECT_EQ(cut.get("tokens"), (Ids{2, 5, 6, 7, 3, 3}));
  EXPECT_EQ(cut.get("types"), (Ids{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(build(pair, 1, 4).train()->sample(0).get("types"), (Ids{0, 0, 0, 1}));
  const DataConfig single = config("b.jsonl", R"({"text":"a b c d","label":0})");
  EXPECT_EQ(build(single, 1, 4).train()->sample(0).get("tokens"), (Ids{2, 5, 6, 3}));
}

TEST_F(LabelledTextFiles, ChoicesLieInOneRow) {
  const DataConfig data =
      config("a.jsonl", R"({"question":"a","choices":["b","c d"],"label":1})", FinetuneTask::rank);
  const Sample sample = build(data, 1, 6).train()->sample(0);
  EXPECT_EQ(sample.get("tokens"), (Ids{2, 5, 3, 6, 3, 0, 2, 5, 3, 7, 8, 3}));
  EXPECT_EQ(sample.get("position_ids"), (Ids{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sample.get<std::int32_t>("document_ids"),
            (std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(sample.get("choice_starts"), (Ids{0, 6}));
  EXPECT_EQ(sample.get("class"), Ids{1});
}

/// Each epoch has every text once, in another order, and the orders depend on the seed alone.
TEST_F(LabelledTextFiles, EpochsAreShuffled) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += R"({"text":"a","label":)" + std::to_string(i) + "}\n";
  const DataConfig data = config("a.jsonl", lines);
  const Datasets datasets = build(data, 40), again = build(data, 40);
  std::vector<Ids> epochs(2);
  for (std::int64_t i = 0; i < 40; ++i) {
    epochs[static_cast<std::size_t>(i / 20)].push_back(
        datasets.train()->sample(i).get("class").front());
    EXPECT_EQ(again.train()->sample(i).get("class"), datasets.train()->sample(i).get("class"));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (Ids& epoch : epochs) {
    EXPECT_FALSE(std::ranges::is_sorted(epoch));
    std::ranges::sort(epoch);
    for (std::size_t i = 0; i < epoch.size(); ++i) EXPECT_EQ(epoch[i], static_cast<int>(i));
  }
  EXPECT_EQ(count_train_samples(data, {.sequence_length = 8, .kind = SampleKind::labelled}, 2.5),
            50);
  const Datasets narrow = build(data, 20, 8, /*num_classes=*/3);
  EXPECT_THAT(message_of([&] {
                for (std::int64_t i = 0; i < 20; ++i) narrow.train()->sample(i);
              }),
              HasSubstr("the model has 3 classes"));
}

}  // namespace
}  // namespace megatron
