// Layers with states see each document alone, whatever divides the ranks, also when several
// documents are packed in a row.
#include <gtest/gtest.h>

#include "layouts/chosen_layouts.h"
#include "layouts/layout_run.h"
#include "layouts/short_documents.h"

namespace megatron::layouts {
namespace {

struct Division {
  Flags flags;
  std::int64_t world_size;
};
const std::vector<Division>& divisions() {
  static const std::vector<Division> all = {
      {{"--tensor-model-parallel-size", "2", "--sequence-parallel"}, 2},
      {{"--tensor-model-parallel-size", "4"}, 4},
      {{"--tensor-model-parallel-size", "4", "--sequence-parallel", "--use-distributed-optimizer"},
       8},
      {{"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-v"}, 2},
      {{"--tensor-model-parallel-size", "2", "--zero-stage", "3"}, 4},
      {{"--recompute-granularity", "full", "--recompute-method", "uniform",
        "--recompute-num-layers", "1"},
       1}};
  return all;
}

TEST(RecurrentLayouts, TrainOnPackedDocumentsAsOneRankDoes) {
  for (const Family& family : families()) {
    if (!family.is_recurrent()) continue;
    Flags run = family.run_flags(one_sgd_step());
    std::erase(run, "--reset-attention-mask");
    run.emplace_back("--dataloader-inter-document-masking");
    use_short_documents(run);
    const TrainingResult expected = train_in_layout(run, 1, {.dtype = at::kDouble});
    for (const auto& [flags, world_size] : divisions()) {
      SCOPED_TRACE(family.name + testing::PrintToString(flags));
      Flags all = run;
      all.insert(all.end(), flags.begin(), flags.end());
      const TrainingResult actual = train_in_layout(all, world_size, {.dtype = at::kDouble});
      EXPECT_LE(curve_distance(actual.losses, expected.losses), 1e-12);
      expect_gradients(actual, expected, 1e-11);
    }
  }
}

}  // namespace
}  // namespace megatron::layouts
