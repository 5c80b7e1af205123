// `pretrain bert` logs the losses of both heads, or of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "layouts/layout.h"
#include "support/message_of.h"
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
  EXPECT_THAT(log_of(bert_run({"--keep-padding"})), HasSubstr(note));
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

}  // namespace
}  // namespace megatron
