// A run of T5, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "layouts/layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "support/message_of.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

std::vector<std::string> t5_flags(const layouts::Flags& more) {
  std::vector<std::string> flags = small_run::flags(layouts::t5(more));
  flags.front() = "t5";
  return flags;
}

std::string mistake(const layouts::Flags& more) {
  return message_of([&] { read_run(t5_flags(more)); });
}

TEST(T5Run, TrainsAndValidatesBothStacks) {
  for (const layouts::Flags& more :
       {layouts::Flags{}, layouts::Flags{"--position-embedding-type", "relative", "--bf16"},
        layouts::Flags{"--decoder-num-layers", "1", "--position-embedding-type", "rope"}}) {
    std::ostringstream out;
    Trainer trainer = set_up(read_run(t5_flags(more)), out);
    EXPECT_EQ(train(trainer, out), 0);
    EXPECT_THAT(out.str(), HasSubstr("> finished creating T5 datasets ..."));
    EXPECT_THAT(out.str(),
                ContainsRegex("iteration        8/       8 \\|.* \\| lm loss: [0-9.]+E.[0-9]+ "));
    EXPECT_THAT(out.str(), ContainsRegex("iteration 8 on validation set \\| lm loss value: "));
  }
}

TEST(T5Run, CountsTheLayersOfBothStacks) {
  const auto model = [](const char* count_flag, const layouts::Flags& more) {
    std::vector<std::string> flags = t5_flags(more);
    const auto count = std::ranges::find(flags, "--num-layers");
    *count = count_flag, *std::next(count) = "3";
    return *read_run(flags).options.settings.model;
  };
  const TransformerConfig same = model("--encoder-num-layers", {}),
                          fewer = model("--num-layers", {"--decoder-num-layers", "1"});
  EXPECT_EQ(same.num_layers, 6);
  EXPECT_EQ(same.decoder_num_layers, 3);
  EXPECT_EQ(fewer.num_layers, 4);
  EXPECT_EQ(fewer.encoder_num_layers(), 3);
  EXPECT_FALSE(fewer.kind(2).has_cross_attention);
  EXPECT_TRUE(fewer.kind(3).has_cross_attention);
}

TEST(T5Run, RefusesWhatTwoSequencesCannotDo) {
  EXPECT_THAT(mistake({"--context-parallel-size", "2"}), HasSubstr("--context-parallel-size"));
  EXPECT_THAT(mistake({"--num-experts", "4"}), HasSubstr("--num-experts"));
  EXPECT_THAT(mistake({"--group-query-attention", "--num-query-groups", "1"}),
              HasSubstr("--group-query-attention"));
  EXPECT_THAT(mistake({"--decoder-seq-length", "0"}), HasSubstr("--decoder-seq-length"));
  EXPECT_THAT(mistake({"--decoder-seq-length", "31", "--max-position-embeddings", "32",
                       "--position-offset", "2"}),
              HasSubstr("--decoder-seq-length: 31 is above the 30 positions"));
  EXPECT_THAT(mistake({"--position-embedding-type", "alibi"}), HasSubstr("alibi"));
  EXPECT_THAT(mistake({"--decoder-num-layers", "0"}),
              HasSubstr("--decoder-num-layers: must be at least 1, got 0"));
  std::vector<std::string> gpt = t5_flags({"--decoder-num-layers", "2"});
  gpt.front() = "gpt";
  EXPECT_THAT(message_of([&] { read_run(gpt); }), HasSubstr("--decoder-num-layers"));
}

}  // namespace
}  // namespace megatron
