// Runs that freeze parameters, and what they say of it.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/settings.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

at::Tensor weight_of(const small_run::Outcome& run, const char* name) {
  return run.trainer.state.weights->find(name)->value().clone();
}

TEST(FrozenRun, ResumesWithOtherParametersFrozen) {
  const TemporaryFolder folder;
  const std::string root = (folder / "run").string();
  const char *table = "embedding.word_embeddings.weight", *norm = "decoder.final_layernorm.weight";
  const auto fresh = small_run::run({"--exit-interval", "2"});
  EXPECT_THAT(fresh.log, Not(HasSubstr("frozen")));
  const auto frozen = small_run::run(
      {"--save", root, "--exit-interval", "2", "--freeze", "^embedding[.]", "--freeze", "final"});
  EXPECT_THAT(frozen.log,
              HasSubstr("\n  final layernorm                     0               64\n"));
  EXPECT_FALSE(at::equal(weight_of(frozen, table), weight_of(fresh, table)));
  EXPECT_FALSE(frozen.trainer.state.weights->find(table)->grad().defined());

  const auto resumed =
      small_run::run({"--load", root, "--exit-interval", "4", "--freeze", "final_layernorm"});
  EXPECT_THAT(resumed.log,
              HasSubstr("WARNING: the optimizer's state starts at zero for parameters that the "
                        "saved run froze: embedding."));
  EXPECT_TRUE(at::equal(weight_of(resumed, norm), weight_of(frozen, norm)));
  EXPECT_FALSE(at::equal(weight_of(resumed, table), weight_of(frozen, table)));
}

}  // namespace
}  // namespace megatron
