// A whole plan for a budget, with layers that are measured on this machine.
#include "megatron/planner/memory_budget.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "megatron/base/offload_file.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/predict_memory_table.h"
#include "support/gpt_traces.h"
#include "support/temporary_folder.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

class MemoryBudgetOfTinyGpt : public testing::Test {
 protected:
  MemoryBudgetOfTinyGpt() {
    settings_.model = tiny_gpt();
    settings_.training->micro_batch_size = 4;
    settings_.training->global_batch_size = 4;
    settings_.training->seq_length = settings_.model->max_position_embeddings = 64;
  }

  PipelineLayout layout() const {
    return pipeline_layout(*settings_.parallel, settings_.model->num_layers);
  }
  /// Returns what the plan `text` is predicted to need.
  double peak_of(const std::string& text) const {
    Settings settings = settings_;
    settings.memory->activation_plan = text;
    return predict_memory_table(settings, gpt_traces(), rank_, layout(), 1, {}).peak;
  }
  BudgetPlan plan(double bytes, OffloadStore* store = nullptr, double space = 1e12) const {
    const PipelineLayout layout = this->layout();
    return plan_memory_budget({.settings = settings_,
                               .family = find_model_family("gpt"),
                               .rank = rank_,
                               .layout = layout,
                               .budget_bytes = bytes,
                               .offload_store = store,
                               .offload_space_bytes = space});
  }

  Settings settings_;
  const Rank rank_ = make_rank(Mesh(mesh_sizes(*settings_.parallel), 1), 0);
};

bool offloads(const BudgetPlan& plan) {
  return std::ranges::any_of(plan.layers, &LayerPolicy::offload);
}

TEST_F(MemoryBudgetOfTinyGpt, RecomputesOnlyWhenItMust) {
  const BudgetPlan ample = plan(peak_of("none*2"));
  EXPECT_EQ(activation_plan_text(ample.layers), "none*2");
  EXPECT_EQ(ample.predicted_bytes, peak_of("none*2"));
  EXPECT_EQ(ample.micro_batch_size, 4);
  const BudgetPlan tight = plan(peak_of("none*2") - 1);
  EXPECT_NE(activation_plan_text(tight.layers), "none*2");
  EXPECT_LT(tight.predicted_bytes, peak_of("none*2"));
  EXPECT_EQ(tight.predicted_bytes, peak_of(activation_plan_text(tight.layers)));
  EXPECT_THROW(plan(1000), UserError);
}

TEST_F(MemoryBudgetOfTinyGpt, OffloadsOnlyToAFolderWithRoomForAllLayers) {
  const TemporaryFolder folder;
  const auto store = make_file_offload_store(
      std::make_shared<OffloadFile>(OffloadFile::Options{.folder = folder.path()}));
  settings_.memory->offload.min_offloaded_tensor_size = 0;
  // Activations of megabytes, so that they exceed the buffers of an offload file.
  settings_.training->micro_batch_size = settings_.training->global_batch_size = 256;
  settings_.model->num_layers = 6;
  const double least = peak_of("full+offload*6");
  ASSERT_LT(least, peak_of("full*6"));
  const BudgetPlan roomy = plan(least, store.get());
  EXPECT_TRUE(offloads(roomy));
  EXPECT_THAT(roomy.table, Not(HasSubstr("no layer offloads")));
  try {
    plan(least, store.get(), /*space=*/1000);
    FAIL() << "only offload fits this budget";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("(no layer offloads: --offload-folder has 1000 B free"));
  }
  const BudgetPlan full = plan(peak_of("none*6") - 1, store.get(), /*space=*/1000);
  EXPECT_FALSE(offloads(full));
  EXPECT_THAT(full.table, HasSubstr("no layer offloads: --offload-folder has 1000 B"));
}

}  // namespace
}  // namespace megatron
