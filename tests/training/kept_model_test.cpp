// A model of an earlier start gives the same training as a new one.
#include "megatron/training/loop/kept_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <sstream>

#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/parallel/comm.h"
#include "megatron/training/loop/setup.h"
#include "megatron/training/run/training_plan.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

using Flags = std::vector<std::string>;
constexpr const char* kUsedAgain = "using the model of the last start again";

/// Returns the losses and gradient norms of the eight steps, as printed.
Flags numbers(const std::string& log) {
  static const std::regex line("iteration +(\\d+)/|(lm loss|grad norm): ([^ ]+)");
  Flags found;
  for (std::sregex_iterator i(log.begin(), log.end(), line), end; i != end; ++i)
    found.push_back(i->str());
  EXPECT_EQ(found.size(), 8U * 3) << log;
  return found;
}

/// Runs a start with what an earlier one has kept. Returns its log.
std::string run_again(KeptModel& kept, const Flags& more) {
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(more)), out, {.kept = &kept});
  train(trainer, out);
  return out.str();
}

/// Sets up a run, trains and keeps its model.
KeptModel kept_after(
    const Flags& more, const std::function<void(Trainer&)>& change = [](Trainer&) {}) {
  KeptModel kept;
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(more)), out);
  train(trainer, out);
  change(trainer);
  kept.keep(trainer);
  return kept;
}

TEST(KeptModel, TrainsLikeANewOne) {
  for (const Flags& flags :
       {Flags{}, Flags{"--bf16"}, Flags{"--swiglu", "--hidden-dropout", "0.2"},
        Flags{"--num-experts", "4", "--moe-router-topk", "2", "--moe-aux-loss-coeff", "1e-2"}}) {
    KeptModel kept = kept_after(flags);
    const std::string log = run_again(kept, flags);
    EXPECT_THAT(log, HasSubstr(kUsedAgain));
    EXPECT_EQ(numbers(log), numbers(small_run::run(flags).log));
  }
}

/// A run moves experts among the ranks (--moe-expert-placement-interval). The ranks of the next
/// start must agree on their places, and a new one has them in their first order.
TEST(KeptModel, HasItsExpertsAtTheirFirstPlaces) {
  const Flags flags{"--num-experts", "4", "--moe-router-topk", "2", "--moe-token-dispatcher-type",
                    "alltoall"};
  KeptModel kept = kept_after(flags, [](Trainer& trainer) {
    for (MoeLayer* layer : moe_layers(*trainer.state.model)) layer->place_experts({3, 1, 0, 2});
  });
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(flags)), out, {.kept = &kept});
  ASSERT_THAT(out.str(), HasSubstr(kUsedAgain));
  int num_weights = 0;
  for (const Parameter* parameter : trainer.state.weights->parameters()) {
    if (!parameter->spec().tags.expert) continue;
    ++num_weights;
    EXPECT_THAT(parameter->sharding().splits.front().order, testing::ElementsAre(0, 1, 2, 3))
        << parameter->name();
  }
  EXPECT_EQ(num_weights, 8) << "two weights and two biases in each layer";
}

TEST(KeptModel, IsNotThatOfOtherSettings) {
  for (const Flags& other : {Flags{"--hidden-size", "16"}, Flags{"--hidden-dropout", "0.3"},
                             Flags{"--seed", "7"}, Flags{"--bf16"}}) {
    KeptModel kept = kept_after({});
    const std::string log = run_again(kept, other);
    EXPECT_THAT(log, Not(HasSubstr(kUsedAgain)));
    EXPECT_EQ(numbers(log), numbers(small_run::run(other).log));
  }
}

/// The stages may follow from measured times (--pipeline-split measured).
TEST(KeptModel, IsNotThatOfOtherStages) {
  std::ostringstream out;
  StartupWarnings warnings;
  const auto plan = [&] {
    return resolve_run(read_run(small_run::flags({})), {.device = OpenedDevice{}}, warnings, out)
        .plan;
  };
  TrainingPlan same = plan(), other = plan();
  PipelineLayout layout = other.pipeline.layout();
  layout.stages.front().num_layers += 1;
  other.pipeline = PipelinePlan(layout, other.pipeline.options());
  EXPECT_NE(kept_after({}).take(same), nullptr);
  EXPECT_EQ(kept_after({}).take(other), nullptr);
}

/// Throws as a call does whose peer has died, after some passes of units.
class PeerDies final : public UnitHooks {
 public:
  explicit PeerDies(int passes) : left_(passes) {}
  bool observes_ops() const override { return false; }
  bool observes_backward() const override { return true; }
  void after_forward(const Module&, const at::Tensor&) override { pass(); }
  void before_backward(const Module&, const at::Tensor&) override { pass(); }
  UnitHooks& in_second_run() override { return *this; }

 private:
  void pass() {
    if (--left_ == 0) throw CommError("rank 1 died");
  }
  int left_;
};

/// The failure of another rank comes in the middle of forward, of backward or of a recomputation.
TEST(KeptModel, TrainsLikeANewOneAfterABrokenStep) {
  for (const Flags& flags :
       {Flags{"--hidden-dropout", "0.2"},
        Flags{"--recompute-granularity", "full", "--recompute-method", "uniform",
              "--recompute-num-layers", "1"},
        Flags{"--num-experts", "4", "--moe-router-topk", "2", "--moe-aux-loss-coeff", "1e-2",
              "--moe-router-load-balancing-type", "global_aux_loss"},
        Flags{"--bf16", "--use-distributed-optimizer", "--overlap-grad-reduce",
              "--overlap-param-gather"}}) {
    const Flags expected = numbers(small_run::run(flags).log);
    for (int passes = 1; passes <= 22; passes += 3) {
      KeptModel kept;
      {
        std::ostringstream out;
        Trainer trainer = set_up(read_run(small_run::flags(flags)), out);
        PeerDies hooks(passes);
        const UnitHooksScope scope(*trainer.state.model, hooks);
        EXPECT_THROW(train(trainer, out), CommError);
        kept.keep(trainer);
      }
      const std::string log = run_again(kept, flags);
      EXPECT_THAT(log, HasSubstr(kUsedAgain));
      EXPECT_EQ(numbers(log), expected) << "after " << passes << " passes";
    }
  }
}

TEST(KeptModel, IsUsedOnce) {
  KeptModel kept = kept_after({});
  EXPECT_THAT(run_again(kept, {}), HasSubstr(kUsedAgain));
  EXPECT_THAT(run_again(kept, {}), Not(HasSubstr(kUsedAgain)));
}

/// Transfers of a store may be under way when a run ends.
TEST(KeptModel, IsNotOneWhoseActivationsAreOffloaded) {
  const TemporaryFolder folder;
  const Flags flags{"--cpu-offloading", "--cpu-offloading-num-layers", "1", "--offload-folder",
                    folder.path().string()};
  KeptModel kept = kept_after(flags);
  EXPECT_THAT(run_again(kept, flags), Not(HasSubstr(kUsedAgain)));
}

}  // namespace
}  // namespace megatron
