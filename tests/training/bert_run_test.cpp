// A program's own family with two heads trains as GPT does, and the log has both losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "layouts/layout.h"
#include "megatron/parallel/rank.h"
#include "support/bert_model.h"
#include "support/message_of.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

std::vector<std::string> bert_flags() {
  std::vector<std::string> flags = small_run::flags(layouts::bert());
  flags.front() = "bert";
  return flags;
}

TEST(BertRun, LogsTheLossesOfBothHeads) {
  const ModelFamilies& families = families_with_bert();
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(bert_flags(), 1, families.names()), out, {.families = &families});
  EXPECT_EQ(train(trainer, out), 0);
  EXPECT_THAT(out.str(), HasSubstr("> finished creating BERT datasets ..."));
  EXPECT_THAT(out.str(),
              ContainsRegex("iteration        8/       8 \\|.* \\| lm loss: [0-9.]+E.[0-9]+ "
                            "\\| sop loss: [0-9.]+E.[0-9]+ \\| loss scale: "));
  EXPECT_THAT(out.str(),
              ContainsRegex("iteration 8 on validation set \\| lm loss value: [^|]+\\| lm loss "
                            "PPL: [^|]+\\| sop loss value: "));
}

TEST(BertRun, NeedsTheProgramThatHasTheFamily) {
  EXPECT_THAT(message_of([] { read_run(bert_flags()); }), HasSubstr("'bert'"));
  const RunConfig run = read_run(bert_flags(), 1, families_with_bert().names());
  std::ostringstream out;
  EXPECT_THAT(message_of([&] { set_up(run, out); }), HasSubstr("got 'bert'"));
}

}  // namespace
}  // namespace megatron
