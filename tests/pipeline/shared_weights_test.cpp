// A weight that several stages of a pipeline declare has the gradient and the update of one rank.
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_spec.h"
#include "megatron/optimizer/optimizer.h"
#include "pipeline/staged_gpt.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kWidth = 5, kSamples = 3, kMicrobatches = 12;

/// Layer i multiplies by a weight of its own and takes the tanh. The layers `sharing` multiply by
/// the weight "shared" too.
class SharingModel : public Model {
 public:
  SharingModel(const PipelineLayout& layout, const std::set<std::int64_t>& sharing,
               std::int64_t pipeline_rank)
      : Model(nullptr, ""), layout_(layout), pipeline_rank_(pipeline_rank) {
    const StageHolders holders =
        stage_holders(layout, pipeline_rank, [&](const StageLayers& stage) {
          const auto first = sharing.lower_bound(stage.first_layer);
          return first != sharing.end() && *first < stage.first_layer + stage.num_layers;
        });
    for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk) {
      const StageLayers& stage = layout.of(pipeline_rank, chunk);
      for (std::int64_t i = 0; i < stage.num_layers; ++i) {
        const std::int64_t layer = stage.first_layer + i;
        weights_[layer].push_back(&add("layer" + std::to_string(layer), {}));
        if (sharing.contains(layer)) weights_[layer].push_back(&add("shared", holders));
      }
    }
  }
  const TransformerConfig& config() const override { return config_; }
  std::int64_t num_chunks() const override { return layout_.num_chunks; }
  std::vector<ActivationSpec> input_specs(std::int64_t chunk, const Pass&) const override {
    return layout_.of(pipeline_rank_, chunk).has_embedding ? Specs{} : Specs{kHidden};
  }
  std::vector<ActivationSpec> output_specs(std::int64_t chunk, const Pass&) const override {
    return layout_.of(pipeline_rank_, chunk).has_output ? Specs{} : Specs{kHidden};
  }
  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass, const Activations& in) override {
    const StageLayers& stage = layout_.of(pipeline_rank_, chunk);
    at::Tensor x = in.empty() ? pass.microbatch.at("x") : in.front();
    for (std::int64_t i = 0; i < stage.num_layers; ++i) {
      for (Parameter* weight : weights_.at(stage.first_layer + i))
        x = at::matmul(x, tracked(*weight));
      x = at::tanh(x);
    }
    if (!stage.has_output) return {.activations = {x}};
    return {.loss = StepOutput::of(kLanguageModelLoss, (x * x).sum(), at::ones({}))};
  }

 private:
  using Specs = std::vector<ActivationSpec>;
  inline static const ActivationSpec kHidden{"hidden", {kSamples, kWidth}, at::kDouble};

  Parameter& add(const std::string& name, StageHolders holders) {
    ParameterSpec spec = normal_spec({kWidth, kWidth});
    spec.holders = std::move(holders);
    return declare(name, std::move(spec), Axis{});
  }

  const TransformerConfig config_;
  const PipelineLayout layout_;
  const std::int64_t pipeline_rank_;
  std::map<std::int64_t, std::vector<Parameter*>> weights_;  ///< of each layer
};

struct Stages {
  std::string schedule = "1f1b";
  std::int64_t num_ranks = 1, num_chunks = 1, num_layers = 1;
  std::set<std::int64_t> sharing = {};  ///< layers
};

struct Outcome {
  std::map<std::string, at::Tensor> gradients, weights;
  double norm = 0;
};

/// Trains one step on microbatches that the replicas divide.
Outcome train(const Stages& stages, DataLayout data) {
  data.pp = stages.num_ranks;
  const StagedRun run{.layout = even_layout(stages.schedule, stages.num_ranks, stages.num_chunks,
                                            stages.num_layers),
                      .schedule = stages.schedule};
  const Schedule schedule = run.make(kMicrobatches / data.dp);
  Outcome outcome;
  GlobalTensors gradients, weights;
  on_data_ranks(data, [&](const Rank& rank, Communicators& communicators) {
    std::vector<Microbatch> batch;
    for (std::int64_t i = rank.dp.rank; i < kMicrobatches; i += data.dp) {
      const at::Tensor place = at::arange(kSamples * kWidth, at::kDouble).view({kSamples, kWidth});
      batch.push_back({.tensors = {{"x", at::sin(place + 100 * i)}}, .sample_ordinals = {}});
    }
    SharingModel model(run.layout, stages.sharing, rank.pp.rank);
    ParamStore store(declared_parameters(model),
                     {.dtype = at::kDouble,
                      .data_parallel = data_parallel_of(data, rank, communicators),
                      .model = rank.model,
                      .pipeline = rank.pp,
                      .communicators = &communicators});
    OptimizerConfig config;
    config.optimizer = "sgd";
    config.clip_grad = 0.5;
    const auto optimizer = make_optimizer(config, store);
    optimizer->main_parameters().initialize(5);
    store.zero_gradients();
    run_schedule(schedule, {model, store, rank.pp},
                 {.batch = batch, .on_loss = [](std::size_t, const StepOutput&) {
                    return at::ones({}, at::kDouble);
                  }});
    store.finalize_gradients();
    store.gather_gradients();
    for (const Parameter* parameter : store.parameters())
      gradients.put(*parameter, parameter->grad());
    const double norm = optimizer->step({.lr = 0.1}).grad_norm;
    for (const Parameter* parameter : store.parameters())
      weights.put(*parameter, parameter->value());
    if (rank.index == 0) outcome.norm = norm;
  });
  outcome.gradients = gradients.take();
  outcome.weights = weights.take();
  return outcome;
}

/// The holders' sums of a gradient are added in another order than on one rank.
constexpr double kTolerance = 1e-12;

TEST(SharedWeights, HaveOneRanksGradientAndUpdate) {
  const Stages cases[] = {
      {"1f1b", 3, 1, 3, {0, 1, 2}},
      {"1f1b", 4, 1, 4, {0, 2, 3}},
      {"interleaved", 3, 2, 6, {0, 3, 4, 5}},  // twice on the first rank
      {"interleaved", 4, 2, 8, {1, 2, 7}},
      {"zb-v", 3, 2, 6, {1, 2, 5}},  // the lowest stage is on the second rank
  };
  for (const Stages& stages : cases) {
    const Outcome one =
        train({.num_layers = stages.num_layers, .sharing = stages.sharing}, DataLayout{});
    ASSERT_EQ(one.weights.size(), static_cast<std::size_t>(stages.num_layers) + 1);
    for (const DataLayout& data :
         {DataLayout{}, DataLayout{.dp = 2, .distributed_optimizer = true}}) {
      SCOPED_TRACE(stages.schedule + " over " + std::to_string(stages.num_ranks) + ", " +
                   data.name());
      const Outcome staged = train(stages, data);
      EXPECT_NEAR(staged.norm / one.norm, 1, kTolerance) << "a shared weight counts once";
      for (const auto& [name, gradient] : one.gradients) {
        EXPECT_LE(difference(staged.gradients.at(name), gradient), kTolerance) << name;
        EXPECT_LE(difference(staged.weights.at(name), one.weights.at(name)), kTolerance) << name;
      }
    }
  }
}

TEST(SharedWeights, BelongToTheLowestStage) {
  const auto ends = [](const StageLayers& stage) {
    return stage.has_embedding || stage.has_output;
  };
  const auto inner = [](const StageLayers& stage) {
    return stage.first_layer == 1 || stage.has_output;
  };
  const PipelineLayout loop = even_layout("interleaved", 3, 2, 6), v = even_layout("zb-v", 3, 2, 6);
  EXPECT_EQ(stage_holders(loop, 2, ends).ranks, (std::vector<std::int64_t>{0, 2}));
  EXPECT_TRUE(stage_holders(loop, 0, ends).is_owner);
  EXPECT_FALSE(stage_holders(loop, 2, ends).is_owner);
  EXPECT_EQ(stage_holders(v, 0, ends).ranks, (std::vector<std::int64_t>{0}))
      << "both ends of a V are on one rank";
  EXPECT_EQ(stage_holders(v, 0, inner).ranks, (std::vector<std::int64_t>{0, 1}));
  EXPECT_FALSE(stage_holders(v, 0, inner).is_owner) << "its stage is the last";
  EXPECT_TRUE(stage_holders(v, 1, inner).is_owner);
}

}  // namespace
}  // namespace megatron
