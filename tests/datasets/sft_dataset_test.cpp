// The expected samples were made by Megatron-LM's SFTDataset and SFTTokenizer
// (tests/parity/make_sft_fixtures.py).
#include "megatron/datasets/sft_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "datasets/extended_tokenizer.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/data_report.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

constexpr const char* kIdentity = "identity";

class SftDatasets : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer(const std::string& name) {
    folder_.write("tokenizer_config.json", R"({"pad_token":"<unk>"})");
    auto& opened = tokenizers_[name];
    if (!opened)
      opened = test::with_tokens(
          name, {"<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>", "<unk>"},
          folder_);
    return opened;
  }

  /// Writes a file of conversations and returns the dataset of all its lines.
  SftDataset open(const std::string& content, const SftDatasetOptions& options,
                  const std::string& format = kIdentity, const std::string& name = "gpt2",
                  std::optional<std::int64_t> num_samples = {}) {
    const auto file = std::make_shared<const ConversationFile>(folder_.write("c.jsonl", content));
    std::vector<std::string> warnings;
    return SftDataset(file,
                      {.path = file->path().string(),
                       .begin = 0,
                       .end = file->size(),
                       .num_samples = num_samples},
                      options,
                      std::make_shared<const PromptFormat>(format, tokenizer(name),
                                                           ChatFiles{.folder = folder_.path()}),
                      warnings);
  }

  std::string refusal(const std::string& messages) {
    return message_of([&] {
      open("\n{\"messages\":" + messages + "}\n", {.sequence_length = 8}, "nemotron-h-aligned")
          .sample(0);
    });
  }

  TemporaryFolder folder_;
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_;
};

TEST_F(SftDatasets, GiveTheSamplesOfMegatron) {
  std::istringstream lines(read_file(MEGATRON_SOURCE_DIR "/tests/datasets/fixtures/sft.jsonl"));
  int count = 0, refused = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = parse_json(line, "sft.jsonl");
    const std::int64_t ranks = json["cp"];
    folder_.write("chat_template.jinja", json.value("template", "unused"));
    const SftDataset dataset =
        open(Json({{"messages", json["messages"]}}).dump() + "\n",
             {.sequence_length = json["seq_length"], .row_multiple = ranks > 1 ? 2 * ranks : 1},
             json["format"], json["tokenizer"]);
    if (json["refused"].get<bool>()) {
      EXPECT_THROW(dataset.sample(0), UserError) << line;
      ++refused;
      continue;
    }
    const Sample sample = dataset.sample(0);
    EXPECT_EQ(sample.get("tokens"), json["tokens"].get<Ids>()) << line;
    EXPECT_EQ(sample.get("position_ids"), json["position_ids"].get<Ids>()) << line;
    Ids labels = sample.get("labels"), boundaries = sample.document_starts;
    for (std::size_t i = 0; i < labels.size(); ++i)  // Megatron masks <unk> in texts too
      if (sample.get<float>("loss_mask")[i] == 0 || labels[i] == json["pad"].get<std::int64_t>())
        labels[i] = kIgnoredLabel;
    boundaries.push_back(static_cast<std::int64_t>(labels.size()));
    EXPECT_EQ(labels, json["labels"].get<Ids>()) << line;
    EXPECT_EQ(boundaries, json["cu_seqlens"].get<Ids>()) << line;
  }
  EXPECT_EQ(count, 128);
  EXPECT_GT(refused, 0);
}

/// Conversations of 2 and 3 tokens that are filled up to multiples of 4, and the rest of the row.
TEST_F(SftDatasets, NameThePositionsOfPadding) {
  const std::string content =
      R"({"messages":[{"role":"system","content":""},{"role":"user","content":"<SPECIAL_10>"},)"
      R"({"role":"assistant","content":"<unk>"},)"
      R"({"role":"system","content":"<SPECIAL_10>"},{"role":"user","content":"<SPECIAL_11>"},)"
      R"({"role":"assistant","content":"<SPECIAL_12>"}]})";
  const Sample sample = open(content, {.sequence_length = 10, .row_multiple = 4}).sample(0);
  EXPECT_THAT(sample.document_starts, ElementsAre(0, 4));
  EXPECT_THAT(sample.padding, ElementsAre(2, 3, 7, 8, 9));
  EXPECT_THAT(open(content, {.sequence_length = 5}).sample(0).padding, testing::IsEmpty());
}

// The values follow from the definition: each token has the next one as its label, the end token of
// an answer too, except the last token and padding.
TEST_F(SftDatasets, TrainOnTheEndTokenWhereItIsThePadding) {
  folder_.write("chat_template.jinja", "{% for m in messages %}{{ m['content'] }}{% endfor %}");
  for (const char* config :
       {R"({"eos_token":"<unk>","pad_token":"<unk>"})", R"({"eos_token":"<unk>"})"}) {
    folder_.write("tokenizer_config.json", config);
    tokenizers_["gpt2"] = test::with_tokens("gpt2", {"<SPECIAL_10>", "<unk>"}, folder_);
    const std::int64_t question = tokenizer("gpt2")->find("<SPECIAL_10>"),
                       end = tokenizer("gpt2")->find("<unk>"),
                       letter = tokenizer("gpt2")->find("a");
    const std::string turns = R"({"role":"user","content":"<SPECIAL_10>"},)"
                              R"({"role":"assistant","content":"a<unk>"})";
    const std::string line = "{\"messages\":[" + turns + ',' + turns + "]}\n";
    for (const PackingStrategy packing : kPackingStrategies) {
      const Sample sample =
          open(line, {.sequence_length = 8, .packing = packing}, "default").sample(0);
      EXPECT_EQ(sample.get("tokens"),
                (Ids{question, letter, end, question, letter, end, end, end}));
      EXPECT_THAT(sample.get<float>("loss_mask"), ElementsAre(1, 1, 1, 1, 1, 0, 0, 0));
      EXPECT_EQ(sample.get("labels"), (Ids{letter, end, question, letter, end, 0, 0, 0}));
    }
  }
}

TEST_F(SftDatasets, KeepTheOrderOfTheFileOverManyEpochs) {
  std::string content;
  for (const char* text : {"a", "b", "c"})
    content += std::string(R"({"messages":[{"role":"user","content":")") + text + "\"}]}\n\n";
  const SftDataset dataset = open(content, {.sequence_length = 2}, kIdentity, "gpt2", 7);
  EXPECT_EQ(dataset.size(), 7);
  EXPECT_EQ(dataset.text(0), dataset.text(3));
  EXPECT_EQ(dataset.text(1), dataset.text(4));
  EXPECT_NE(dataset.text(0), dataset.text(1));
  EXPECT_THAT(dataset.describe(5), HasSubstr("c.jsonl:5, train sample 5"));
  EXPECT_EQ(dataset.shares(6)[0].epochs, 2);
}

/// A line with one question and answer, whose length varies.
std::string chat_line(int i) {
  std::string question(static_cast<std::size_t>(1 + i * 7 % 13), 'q'), answer(1, 'a');
  for (int k = 0; k < i * 5 % 17; ++k) answer += ' ' + std::to_string(k);
  return Json({{"messages",
                {{{"role", "user"}, {"content", "<SPECIAL_12>" + question + "<SPECIAL_12>"}},
                 {{"role", "assistant"}, {"content", answer + "<SPECIAL_12>"}}}}})
             .dump() +
         "\n";
}

TEST_F(SftDatasets, BestFitHoldsEveryConversationOnce) {
  std::string content;
  for (int i = 0; i < 60; ++i) content += chat_line(i);
  // One line a sequence: the reference, whose samples are checked against Megatron-LM's above.
  const SftDataset lines = open(content, {.sequence_length = 64});
  const SftDataset packed = open(content, {.sequence_length = 64, .packing = PackingStrategy::bfd});
  ASSERT_LT(packed.size(), lines.size());
  const auto without_padding = [&](Ids ids, std::int64_t pad) {
    while (!ids.empty() && ids.back() == pad) ids.pop_back();
    return ids;
  };
  const std::int64_t pad = tokenizer("gpt2")->find("<unk>");
  std::multiset<Ids> expected, got;
  std::int64_t expected_loss = 0, loss = 0;
  for (std::int64_t i = 0; i < lines.size(); ++i) {
    const Sample sample = lines.sample(i);
    expected.insert(without_padding(sample.get("tokens"), pad));
    for (const float value : sample.get<float>("loss_mask")) expected_loss += value != 0 ? 1 : 0;
  }
  for (std::int64_t i = 0; i < packed.size(); ++i) {
    const Sample sample = packed.sample(i);
    Ids ends = sample.document_starts;
    ends.push_back(64);
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
      got.insert(without_padding(
          Ids(sample.get("tokens").begin() + ends[k], sample.get("tokens").begin() + ends[k + 1]),
          pad));
      EXPECT_EQ(sample.get("position_ids")[static_cast<std::size_t>(ends[k])], 0);
    }
    for (const float value : sample.get<float>("loss_mask")) loss += value != 0 ? 1 : 0;
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(loss, expected_loss);
  EXPECT_EQ(packed.shares(2 * packed.size())[0].epochs, 2);
}

TEST_F(SftDatasets, DividedConversationLosesOnlyTheLabelsAtTheCuts) {
  const std::string content =
      R"({"messages":[{"role":"user","content":"<SPECIAL_12>"},)"
      R"({"role":"assistant","content":"<SPECIAL_10><SPECIAL_11><SPECIAL_12><SPECIAL_233>)"
      R"(<SPECIAL_12><SPECIAL_11><SPECIAL_10><SPECIAL_233><SPECIAL_11><SPECIAL_12>"}]})";
  const SftDataset whole = open(content, {.sequence_length = 16});
  const SftDataset split =
      open(content, {.sequence_length = 4, .packing = PackingStrategy::bfd_split});
  const Sample expected = whole.sample(0);
  ASSERT_EQ(split.size(), 3);  // 11 tokens
  for (std::int64_t row = 0; row < 3; ++row) {
    const Sample sample = split.sample(row);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t at = static_cast<std::size_t>(row) * 4 + i;
      EXPECT_EQ(sample.get("tokens")[i], expected.get("tokens")[at]);
      EXPECT_EQ(sample.get<float>("loss_mask")[i],
                i == 3 ? 0 : expected.get<float>("loss_mask")[at])
          << at;
      if (sample.get<float>("loss_mask")[i] != 0) {
        EXPECT_EQ(sample.get("labels")[i], expected.get("labels")[at]);
      }
    }
  }
}

TEST_F(SftDatasets, PartBehindACutIsNotPredictedByItsNeighbor) {
  // Rows of 4: one conversation of 4 tokens, and one of 2 beside the last 2 of a conversation of 6.
  const std::string text = R"({"messages":[{"role":"user","content":"<SPECIAL_12>"},)"
                           R"({"role":"assistant","content":")";
  const SftDataset split =
      open(text + R"(<SPECIAL_12>"}]})" + "\n" + text +
               R"(<SPECIAL_10><SPECIAL_11><SPECIAL_12><SPECIAL_233><SPECIAL_10>"}]})",
           {.sequence_length = 4, .packing = PackingStrategy::bfd_split});
  ASSERT_EQ(split.size(), 2);
  const Sample mixed =
      split.sample(0).document_starts.size() == 2 ? split.sample(0) : split.sample(1);
  EXPECT_THAT(mixed.document_starts, ElementsAre(0, 2));
  EXPECT_THAT(mixed.get<float>("loss_mask"), ElementsAre(1, 0, 1, 0));
}

TEST_F(SftDatasets, CountPaddingAndKeepLengthsInTheCache) {
  std::string content;
  for (int i = 0; i < 20; ++i) content += chat_line(i);
  SftDatasetOptions options{.sequence_length = 64,
                            .packing = PackingStrategy::bfd,
                            .cache = true,
                            .cache_folder = (folder_.path() / "cache").string()};
  const SftDataset built = open(content, options);
  const SftDataset loaded = open(content, options);
  ASSERT_EQ(loaded.size(), built.size());
  for (std::int64_t i = 0; i < built.size(); ++i) EXPECT_EQ(loaded.text(i), built.text(i));
  const SftDataset changed = open(content + chat_line(20) + chat_line(3), options);
  EXPECT_GT(changed.size(), built.size());
  std::string others;  // as many lines, of other lengths
  for (int i = 0; i < 20; ++i) others += chat_line(3 * i + 5);
  open(content, options);
  const SftDataset rebuilt = open(others, options);
  options.cache = false;
  const SftDataset expected = open(others, options);
  ASSERT_EQ(rebuilt.size(), expected.size());
  for (std::int64_t i = 0; i < rebuilt.size(); ++i) EXPECT_EQ(rebuilt.text(i), expected.text(i));
  const CorpusShare share = built.shares(built.size())[0];
  ASSERT_EQ(share.packings.size(), 3);
  EXPECT_EQ(share.packings[0].sequences, 20);
  EXPECT_TRUE(share.packings[1].is_used);
  EXPECT_EQ(share.packings[1].sequences, built.size());
  EXPECT_EQ(share.packings[1].tokens, share.tokens);
  EXPECT_EQ(share.packings[1].padding, 64 * built.size() - share.tokens);
  EXPECT_EQ(share.conversations, 20);
  EXPECT_EQ(share.unlabeled, 0);

  options.packing = PackingStrategy::line;
  options.report_lines = 5;
  const CorpusShare estimate = open(content, options).shares(1)[0];
  EXPECT_EQ(estimate.packings[0].documents, 5);
  EXPECT_EQ(estimate.conversations, 5);
  EXPECT_EQ(estimate.tokens, 0);
}

TEST_F(SftDatasets, CountConversationsWithoutALoss) {
  const std::string asks = R"({"messages":[{"role":"user","content":"a"},)"
                           R"({"role":"system","content":""},{"role":"user","content":"b"}]})"
                           "\n";
  SftDatasetOptions options{.sequence_length = 64};
  for (const PackingStrategy packing : kPackingStrategies) {
    options.packing = packing;
    const CorpusShare share = open(asks + chat_line(1) + chat_line(2), options).shares(1)[0];
    EXPECT_EQ(share.conversations, 4);
    EXPECT_EQ(share.unlabeled, 2);
    EXPECT_THAT(
        data_table({{"train", share}}),
        HasSubstr("c.jsonl (train) have no answer within --seq-length: no token has a loss"));
  }
}

// The answers lie behind the 8 tokens of a sequence: of the question, or of the conversation
// before.
TEST_F(SftDatasets, CountConversationsWhoseAnswerIsCutOff) {
  const auto chat = [](const std::string& question) {
    return R"({"role":"user","content":")" + question + R"("},{"role":"assistant","content":"b"})";
  };
  const std::string content = R"({"messages":[)" + chat("a a a a a a a a a a a a") + "]}\n" +
                              R"({"messages":[{"role":"system","content":""},)" + chat("a a a a") +
                              R"(,{"role":"system","content":""},)" + chat("a a a a") + "]}\n";
  SftDatasetOptions options{.sequence_length = 8};
  const std::vector<std::int64_t> expected{2, 1, 0};
  for (const PackingStrategy packing : kPackingStrategies) {
    options.packing = packing;
    const SftDataset dataset = open(content, options);
    const CorpusShare share = dataset.shares(1)[0];
    EXPECT_EQ(share.conversations, 3);
    EXPECT_EQ(share.unlabeled, expected[static_cast<std::size_t>(packing)]);
    EXPECT_EQ(share.packings[1].unlabeled, 1);
    double labels = 0;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const Sample sample = dataset.sample(i);
      for (const float mask : sample.get<float>("loss_mask")) labels += mask;
    }
    EXPECT_GT(labels, 0);
  }
}

TEST_F(SftDatasets, SampleOfBlanksHasNoLoss) {
  const SftDataset dataset = open(R"({"messages":[{"role":"tool","content":"unseen"}]})",
                                  {.sequence_length = 4}, "nemotron-h-aligned");
  const Sample sample = dataset.sample(0);
  EXPECT_THAT(sample.get<float>("loss_mask"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(sample.document_starts, ElementsAre(0));
  EXPECT_THAT(sample.get("position_ids"), ElementsAre(0, 1, 2, 3));
}

TEST_F(SftDatasets, NameBrokenConversations) {
  EXPECT_THAT(refusal("[]"), HasSubstr("c.jsonl:2: 'messages' must be a list"));
  EXPECT_THAT(refusal("7"), HasSubstr("c.jsonl:2: 'messages' must be a list"));
  EXPECT_THAT(refusal(R"([{"role":"user"}])"), HasSubstr("content"));
  EXPECT_THAT(refusal(R"([{"role":"user","content":null}])"), HasSubstr("'content' must be text"));
  EXPECT_THAT(refusal(R"([{"role":"bot","content":"x"}])"),
              HasSubstr("message 1 of a conversation has an unknown role"));
  EXPECT_THAT(refusal(R"([{"role":"assistant","content":"x"}])"), HasSubstr("answers no question"));
  EXPECT_THAT(refusal(R"([{"role":"user","content":"x"},{"role":"assistant","content":""}])"),
              HasSubstr("message 2 of a conversation is an empty answer"));
  EXPECT_THAT(refusal("["), HasSubstr("c.jsonl:2"));
  EXPECT_THAT(refusal(R"([{"role":"user","content":"a\udcb2b"}])"),
              HasSubstr("c.jsonl:2: half of a surrogate pair"));
  EXPECT_THAT(message_of([&] { open("\x1f\x8b\x08", {.sequence_length = 8}); }),
              HasSubstr("is compressed"));
  EXPECT_THAT(message_of([&] { open("", {.sequence_length = 8}); }),
              HasSubstr("the train split has no conversations"));
}

TEST_F(SftDatasets, NameATokenizerWithoutPadding) {
  const auto bare = test::with_tokens("gpt2", {}, folder_);
  EXPECT_THAT(message_of([&] { PromptFormat("nemotron-h-aligned", bare); }),
              HasSubstr("<SPECIAL_233>"));
}

TEST_F(SftDatasets, AreBlendedAndSplit) {
  std::string a, b;
  for (int i = 0; i < 10; ++i) {
    a += R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x"}]})"
         "\n";
    b += R"({"messages":[{"role":"user","content":"b"},{"role":"assistant","content":"y"}]})"
         "\n";
  }
  DataConfig config;
  config.data_path = {"0.25", folder_.write("a.jsonl", a), "0.75", folder_.write("b.jsonl", b)};
  config.split = "8,2,0";
  config.sft = true;
  config.sft_tokenizer_prompt_format = kIdentity;
  const Datasets datasets = build_datasets(config, {.sequence_length = 4,
                                                    .num_samples = {12, 4, 0},
                                                    .cache = false,
                                                    .tokenizer = {.text = tokenizer("gpt2")}});
  ASSERT_EQ(datasets.require(Split::train).size(), 12);
  EXPECT_EQ(datasets.require(Split::valid).size(), 4);
  int from_b = 0;
  const std::int64_t token = tokenizer("gpt2")->find("b");
  for (std::int64_t i = 0; i < 12; ++i) from_b += datasets.train()->text(i)[0] == token ? 1 : 0;
  EXPECT_EQ(from_b, 9);
}

/// An epoch is the lines of the file, or the sequences that its conversations fill.
TEST_F(SftDatasets, CountTheSamplesOfEpochs) {
  std::string lines;
  for (int i = 0; i < 10; ++i)
    lines += R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x"}]})"
             "\n";
  DataConfig config;
  config.data_path = {folder_.write("a.jsonl", lines)};
  config.split = "8,2,0";
  config.sft = true;
  config.sft_tokenizer_prompt_format = kIdentity;
  const auto count = [&](const std::string& strategy, double epochs) {
    config.sft_packing_strategy = strategy;
    return count_train_samples(
        config, {.sequence_length = 8, .cache = false, .tokenizer = {.text = tokenizer("gpt2")}},
        epochs);
  };
  EXPECT_EQ(count("line", 1), 8);
  EXPECT_EQ(count("line", 2.5), 20);
  EXPECT_EQ(count("line", 0.3), 2);
  // Two tokens each: four conversations fill a sequence of eight.
  EXPECT_EQ(count("bfd", 1), 2);
  EXPECT_EQ(count("bfd", 3), 6);
}

TEST(Conversations, NameTheFirstLineWithInvalidUtf8) {
  const std::string line = "{\"messages\":[{\"role\":\"user\",\"content\":\"é\"}]}\n";
  EXPECT_EQ(ConversationFile(line, "c").first_invalid_line(), std::nullopt);
  const ConversationFile file(line + "\n\xff\n\xc3\n", "c");
  EXPECT_EQ(file.first_invalid_line(), 1);
  EXPECT_EQ(file.describe(1), "c:3");
}

// A mock of conversations needs no file, and its samples are those of a file with the same lines.
TEST_F(SftDatasets, MockDataAreConversations) {
  DataConfig config;
  config.mock_data = config.sft = true;
  const Datasets mock = build_datasets(
      config, {.sequence_length = 64,
               .num_samples = {40, 5, 0},
               .tokenizer = {.text = tokenizer("gpt2"), .chat = {.folder = folder_.path()}}});
  const ConversationFile file = mock_conversations();
  EXPECT_EQ(file.size(), 1000);
  std::string lines;
  for (std::int64_t i = 0; i < 40; ++i) {
    Json messages = Json::array();
    for (const Message& message : file.messages(i))
      messages.push_back({{"role", message.role}, {"content", message.content}});
    lines += Json{{"messages", messages}}.dump() + "\n";
    EXPECT_EQ(file.messages(i).front().role, "system");
    EXPECT_GE(split_conversations(file.messages(i)).size(), 1u);
  }
  const SftDataset real = open(lines, {.sequence_length = 64}, config.sft_tokenizer_prompt_format);
  const Dataset& train = mock.require(Split::train);
  ASSERT_EQ(train.size(), 40);
  bool has_loss = false;
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(train.sample(i).get("tokens"), real.sample(i).get("tokens")) << i;
    EXPECT_EQ(train.sample(i).get("labels"), real.sample(i).get("labels")) << i;
    has_loss |= real.sample(i).get("labels") != Ids(64, 0);
  }
  EXPECT_TRUE(has_loss);
  EXPECT_THAT(train.describe(3), HasSubstr("mock conversations:4"));
  EXPECT_EQ(mock.require(Split::valid).size(), 5);
}

}  // namespace
}  // namespace megatron
