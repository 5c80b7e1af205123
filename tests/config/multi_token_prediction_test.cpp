// The flags of multi-token prediction, what contradicts them, and its stages in a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Args depths(const char* number, const Args& more = {}) {
  Args words{"--position-embedding-type", "rope", "--mtp-num-layers", number};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<StageLayers> stages_of(const Args& words) {
  const Settings settings = read_run(small(words), 2).options.settings;
  return pipeline_layout(*settings.parallel, *settings.model).stages;
}

TEST(MultiTokenPrediction, HasMegatronsDefaults) {
  const TransformerConfig none = *read_run(small({})).options.settings.model,
                          two = *read_run(small(depths("2"))).options.settings.model;
  EXPECT_EQ(none.mtp_num_layers, 0);
  EXPECT_EQ(two.mtp_num_layers, 2);
  EXPECT_EQ(two.num_all_layers(), 4);
  EXPECT_EQ(two.mtp_loss_scaling_factor, 0.1);
  EXPECT_FALSE(two.mtp_use_repeated_layer);
  EXPECT_EQ(read_run(small(depths("none"))).options.settings.model->mtp_num_layers, 0);
}

TEST(MultiTokenPrediction, HasALayerOfTheLastKind) {
  TransformerConfig model =
      *read_run(small(depths("1", {"--num-experts", "4", "--moe-layer-freq", "[0,1]"})))
           .options.settings.model;
  resolve(model);
  EXPECT_TRUE(model.kind(0).has_mlp());
  EXPECT_EQ(model.kind(2), model.kind(1));
}

TEST(MultiTokenPrediction, IsInTheStageOfTheOutputOrWhereTheLayoutPutsIt) {
  const Args two_ranks{"--pipeline-model-parallel-size", "2", "--global-batch-size", "8"};
  Args words = depths("2", two_ranks);
  EXPECT_THAT(
      stages_of(words),
      ElementsAre(
          StageLayers{.num_layers = 1, .has_embedding = true},
          StageLayers{.first_layer = 1, .num_layers = 3, .num_mtp = 2, .has_output = true}));
  words.insert(words.end(), {"--pipeline-model-parallel-layout", "Et|t|mm|L"});
  const std::vector<StageLayers> stages = stages_of(words);
  EXPECT_EQ(stages.at(2), (StageLayers{.first_layer = 2, .num_layers = 2, .num_mtp = 2}));
  EXPECT_EQ(stages.at(3), (StageLayers{.first_layer = 4, .has_output = true}));
  words.back() = "Et|tmL";
  EXPECT_THAT(mistake(words, 2),
              HasSubstr("names 1 layers of multi-token prediction (m), --mtp-num-layers is 2"));
}

TEST(MultiTokenPrediction, RefusesWhatModelsWithoutItMayHave) {
  EXPECT_THAT(mistake({"--mtp-num-layers", "1"}),
              HasSubstr("--position-embedding-type learned_absolute"));
  EXPECT_THAT(mistake(depths("1", {"--mtp-detach-heads"})), HasSubstr("--mtp-detach-heads"));
  EXPECT_TRUE(read_run(small({"--mtp-use-repeated-layer"})).parsed.notes.size() > 0);
}

}  // namespace
}  // namespace megatron
