// `pretrain bert` logs the losses of both heads, or of one, and with --task it finetunes.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "layouts/layout.h"
#include "megatron/config/data_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/params/param_store.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

RunConfig bert_run(const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = small_run::flags(layouts::bert(more));
  flags.front() = "bert";
  return read_run(flags);
}

std::string log_of(const RunConfig& run) {
  std::ostringstream out;
  Trainer trainer = set_up(run, out);
  EXPECT_EQ(train(trainer, out), 0);
  return out.str();
}

TEST(BertRun, LogsTheLossesOfBothHeads) {
  const std::string log = log_of(bert_run());
  EXPECT_THAT(log, HasSubstr("> finished creating BERT datasets ..."));
  EXPECT_THAT(log, ContainsRegex("iteration        8/       8 \\|.* \\| lm loss: [0-9.]+E.[0-9]+ "
                                 "\\| sop loss: [0-9.]+E.[0-9]+ \\| loss scale: "));
  EXPECT_THAT(log,
              ContainsRegex("iteration 8 on validation set \\| lm loss value: [^|]+\\| lm loss "
                            "PPL: [^|]+\\| sop loss value: "));
}

TEST(BertRun, WithoutTheBinaryHeadHasOneLoss) {
  const std::string log = log_of(bert_run({"--bert-no-binary-head"}));
  EXPECT_THAT(log, HasSubstr("lm loss: "));
  EXPECT_THAT(log, Not(HasSubstr("sop loss")));
}

TEST(BertRun, SaysThatItKeepsPadding) {
  const char* const note = "> the layers compute the padding of samples too";
  EXPECT_THAT(log_of(bert_run()), Not(HasSubstr(note)));
  EXPECT_THAT(log_of(bert_run({"--keep-padding"})),
              HasSubstr(std::string(note) + ": --keep-padding is given\n"));
}

TEST(BertRun, RefusesWhatBelongsToDecoders) {
  const std::string message = message_of([] {
    bert_run({"--eod-mask-loss", "--reset-position-ids", "--num-tokentypes", "1"});
  });
  EXPECT_THAT(message, HasSubstr("--eod-mask-loss: is for models that predict the next token"));
  EXPECT_THAT(message, HasSubstr("--reset-position-ids"));
  EXPECT_THAT(message, HasSubstr("--num-tokentypes 1: cannot tell the two sentences"));
}

/// As Megatron-LM's pretrain_bert.py, which names no tokenizer type.
TEST(BertRun, TakesVocabTxtForBertsTokenizer) {
  std::vector<std::string> flags = small_run::flags({});
  flags.front() = "bert";
  const std::vector<std::string> bert = layouts::bert();
  flags.insert(flags.end(), bert.begin() + 2, bert.end());
  std::erase(flags, "--tokenizer-type");
  std::erase(flags, "NullTokenizer");
  EXPECT_EQ(read_run(flags).options.settings.tokenizer->tokenizer_type, "BertWordPieceLowerCase");
}

/// Texts of two kinds of words, which are their classes, or the right one of two choices.
class BertFinetune : public ::testing::Test {
 protected:
  static std::string words(int from, unsigned seed) {
    std::string text;
    for (unsigned i = 0; i < 1 + seed % 5; ++i)
      text += "w" + std::to_string(from + 4 * static_cast<int>((seed * 7 + i) % 6)) + " ";
    return text;
  }
  std::string file(const std::string& name, unsigned first) const {
    std::string lines;
    for (unsigned i = first; i < first + 64; ++i) {
      const std::string low = words(0, i), high = words(28, i + 3);
      const std::string right = i % 2 == 0 ? "0" : "1";
      lines += name.starts_with("rank")
                   ? R"({"question":")" + words(2, i) + R"(","choices":[")" +
                         (i % 2 == 0 ? high + R"(",")" + low : low + R"(",")" + high) +
                         R"("],"label":)" + right + "}\n"
                   : R"({"text":")" + (i % 2 == 0 ? low : high) + R"(","label":")" +
                         (i % 2 == 0 ? "low" : "high") + "\"}\n";
    }
    return folder_.write(name, lines);
  }
  static RunConfig read(const std::vector<std::string>& more) {
    std::vector<std::string> flags = small_run::flags(layouts::bert(
        {"--micro-batch-size", "16", "--global-batch-size", "16", "--eval-interval", "1000"}));
    flags.front() = "bert";
    std::erase(flags, "--mock-data");
    flags.insert(flags.end(), more.begin(), more.end());
    return read_run(flags);
  }
  std::vector<std::string> flags(const std::string& task) const {
    return {"--task",       task,
            "--train-data", file(task + ".jsonl", 0),
            "--valid-data", file(task + "-valid.jsonl", 100)};
  }
  static std::vector<std::string> joined(std::vector<std::string> a,
                                         const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  /// Returns the accuracy of the last evaluation on validation data.
  static double accuracy(const std::string& log) {
    static const std::regex line(
        "on validation set \\| lm loss value: [^|]+\\| lm loss PPL: "
        "[^|]+\\| accuracy value: ([^ ]+) \\|");
    double value = -1;
    for (std::sregex_iterator found(log.begin(), log.end(), line), end; found != end; ++found)
      value = std::stod((*found)[1]);
    return value;
  }

  TemporaryFolder folder_;
};

TEST_F(BertFinetune, LearnsClassesAndChoices) {
  for (const std::string task : {"classify", "rank"}) {
    const std::string log = log_of(
        read(joined(flags(task), {"--train-iters", "80", "--lr", "3e-3", "--eval-iters", "4"})));
    EXPECT_THAT(log, ContainsRegex("iteration       80/      80 \\|.* \\| lm loss: [^|]+\\| "
                                   "accuracy: [^|]+\\| loss scale: "));
    EXPECT_GT(accuracy(log), 0.9) << task;
    EXPECT_THAT(log, HasSubstr(task == "classify" ? "> classes 0 to 1: high, low"
                                                  : "padding of samples too: choices have fixed"));
  }
}

TEST_F(BertFinetune, CountsEpochs) {
  std::vector<std::string> more = joined(flags("classify"), {"--epochs", "2"});
  more.insert(more.end(), {"--train-iters", "0", "--lr-warmup-iters", "0"});
  EXPECT_THAT(log_of(read(more)), HasSubstr("is 128 samples of training data: training takes 128 "
                                            "in 8 iterations"));
}

/// A pretrained model keeps its encoder and its pooler, and a run that was saved goes on.
TEST_F(BertFinetune, BeginsWithAPretrainedModel) {
  const std::string pretrained = (folder_ / "pretrained").string(),
                    finetuned = (folder_ / "finetuned").string();
  std::ostringstream out;
  Trainer before = set_up(bert_run({"--save", pretrained, "--save-interval", "8"}), out);
  ASSERT_EQ(train(before, out), 0);
  const std::vector<std::string> more =
      joined(flags("classify"), {"--pretrained-checkpoint", pretrained, "--load", finetuned,
                                 "--save", finetuned, "--save-interval", "4"});
  Trainer after = set_up(read(joined(more, {"--exit-interval", "4"})), out);
  const auto value = [](const Trainer& trainer, const std::string& name) {
    return trainer.state.weights->find(name)->value();
  };
  for (const char* name : {"embedding.word_embeddings.weight", "pooler.dense.weight",
                           "encoder.layers.1.mlp.linear_fc2.weight"})
    EXPECT_TRUE(at::equal(value(after, name), value(before, name))) << name;
  EXPECT_GT(value(after, "classification_head.weight").abs().max().item<double>(), 0);
  EXPECT_EQ(after.state.weights->find("lm_head.dense.weight"), nullptr);
  EXPECT_EQ(after.state.progress.iteration, 0);
  ASSERT_EQ(train(after, out), 0);
  const Trainer resumed = set_up(read(more), out);
  EXPECT_EQ(resumed.state.progress.iteration, 4);
  const Trainer elsewhere =
      set_up(read(joined(flags("classify"),
                         {"--load", (folder_ / "none").string(), "--pretrained-checkpoint",
                          pretrained, "--finetune", "--exit-on-missing-checkpoint"})),
             out);
  EXPECT_TRUE(
      at::equal(value(elsewhere, "pooler.dense.weight"), value(before, "pooler.dense.weight")));
  EXPECT_TRUE(at::equal(value(resumed, "classification_head.weight"),
                        value(after, "classification_head.weight")));
  EXPECT_THAT(message_of([&] {
                set_up(read(joined(flags("classify"), {"--load", (folder_ / "none").string(),
                                                       "--pretrained-checkpoint", "nowhere"})),
                       out);
              }),
              HasSubstr("--pretrained-checkpoint nowhere: does not exist; looked for"));
  EXPECT_THAT(message_of([&] {
                set_up(read(joined(flags("rank"), {"--load", finetuned})), out);
              }),
              HasSubstr("holds a model with other heads than --task trains"));
  EXPECT_THAT(message_of([&] {
                set_up(read_run(small_run::flags({"--load", pretrained, "--finetune"})), out);
              }),
              testing::EndsWith("fix: continue with `megatron pretrain bert`"));
  EXPECT_THAT(message_of([&] {
                set_up(bert_run({"--load", finetuned}), out);
              }),
              HasSubstr("--num-classes 2: is not the head that --task trains"));
}

TEST_F(BertFinetune, NotesFlagsOfMaskedSamples) {
  const auto run = read(joined(flags("classify"), {"--mask-prob", "0.2", "--bert-no-binary-head"}));
  EXPECT_THAT(notes_text(run.parsed.notes),
              HasSubstr("--mask-prob, --bert-no-binary-head: it is for masked samples"));
}

TEST_F(BertFinetune, RefusesWhatDoesNotFit) {
  EXPECT_THAT(message_of([&] {
                read(joined(flags("rank"), {"--num-classes", "3", "--context-parallel-size", "2"}));
              }),
              testing::AllOf(HasSubstr("--num-classes 3: is not the head"),
                             HasSubstr("--context-parallel-size: divides one sequence")));
  EXPECT_THAT(message_of([&] {
                read({"--task", "ICT-ZEROSHOT-NQ", "--mock-data"});
              }),
              HasSubstr("were removed from Megatron-LM"));
  const std::string numbered = folder_.write("numbered.jsonl", R"({"text":"low","label":0}
{"text":"high","label":2}
)");
  std::ostringstream out;
  EXPECT_THAT(message_of([&] {
                set_up(read({"--task", "classify", "--train-data", numbered, "--valid-data",
                             numbered, "--num-classes", "2"}),
                       out);
              }),
              HasSubstr("the data of --task have 3 classes: the model has 2"));
  std::vector<std::string> gpt = small_run::flags({"--task", "classify"});
  EXPECT_THAT(message_of([&] { read_run(gpt); }),
              HasSubstr("--task: finetunes an encoder, and this run trains gpt"));
}

}  // namespace
}  // namespace megatron
