#include "megatron/config/inference_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using testing::HasSubstr;

TEST(InferenceOptions, ScoreNotesThatItCachesNothing) {
  const std::vector<std::string> args{"--load", "model", "--cache-mla-latents"};
  const ScoreOptions score = read_score_options(args, 1);
  EXPECT_FALSE(score.cache_mla_latents);
  EXPECT_THAT(notes_text(score.parsed.notes), HasSubstr("score computes whole sequences"));
  std::vector<std::string> prompted = args;
  prompted.insert(prompted.end(), {"--prompt", "a"});
  const GenerateOptions generate = read_generate_options(prompted, 1);
  EXPECT_TRUE(generate.cache_mla_latents);
  EXPECT_EQ(notes_text(generate.parsed.notes), "");
}

}  // namespace
}  // namespace megatron
