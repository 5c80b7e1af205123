// Compares the table's norms with torch's norms of the same tensors, and the totals with those of
// --log-params-norm and --log-num-zeros-in-grad.
#include "megatron/training/observability/per_layer_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/training/step/train_step.h"
#include "training/small_run.h"

namespace megatron {
namespace {

class PerLayerNormsTest : public testing::Test {
 protected:
  PerLayerNormsTest() {
    std::ostringstream out;
    trainer_.emplace(set_up(read_run(small_run::flags({"--norm-epsilon", "1e-12"})), out));
    const TrainStepContext parts{*trainer_->state.model,     *trainer_->state.weights,
                                 *trainer_->state.optimizer, *trainer_->data.train,
                                 trainer_->timers,           trainer_->plan.rank,
                                 trainer_->plan.pipeline};
    const TrainStepOptions options{
        .iteration = 1, .num_microbatches = 2, .update = {.lr = 1e-2, .count_zeros = true}};
    for (const Parameter* parameter : trainer_->state.weights->parameters())
      before_.push_back(parameter->value().clone());
    PerLayerNormRecorder watch(*trainer_->state.model, *trainer_->state.weights,
                               *trainer_->state.optimizer);
    const auto batch = fetch_microbatches(parts, options);
    const StepLosses losses = forward_backward(parts, options, batch);
    watch.after_backward();
    for (const Parameter* parameter : trainer_->state.weights->parameters())
      gradients_.push_back(parameter->grad().clone());
    update_weights(parts, options, losses);
    result_ = read_step(parts, options, losses);
    table_ = watch.after_update();
  }
  std::optional<Trainer> trainer_;
  std::vector<at::Tensor> before_, gradients_;
  TrainStepResult result_;
  PerLayerNorms table_;
};

double norm_of(const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

TEST_F(PerLayerNormsTest, NormsAreTorchs) {
  const auto& parameters = trainer_->state.weights->parameters();
  ASSERT_EQ(table_.parameters.size(), parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    SCOPED_TRACE(parameters[i]->name());
    EXPECT_EQ(table_.parameters[i].name, parameters[i]->name());
    EXPECT_NEAR(table_.parameters[i].weight, norm_of(before_[i]),
                1e-12 * (1 + norm_of(before_[i])));
    EXPECT_NEAR(table_.parameters[i].gradient, norm_of(gradients_[i]),
                1e-12 * (1 + norm_of(gradients_[i])));
    const double update =
        norm_of(parameters[i]->value().to(at::kDouble) - before_[i].to(at::kDouble));
    EXPECT_NEAR(table_.parameters[i].update, update, 1e-12 * (1 + update));
  }
  EXPECT_THAT(table_.activation_rms, testing::SizeIs(4));  // embedding, two layers, final norm
  // LayerNorm with weight 1, bias 0 and a negligible epsilon gives rows of mean square 1.
  EXPECT_NEAR(table_.activation_rms.at("decoder.final_layernorm"), 1, 1e-6);
}

TEST_F(PerLayerNormsTest, TotalsAreTorchs) {
  std::vector<at::Tensor> weights, gradients;
  for (const Parameter* parameter : trainer_->state.weights->parameters())
    weights.push_back(parameter->value().flatten());
  for (const at::Tensor& gradient : gradients_) gradients.push_back(gradient.flatten());
  const double norm = norm_of(at::cat(weights));
  EXPECT_NEAR(trainer_->state.optimizer->main_parameters().norm(), norm, 1e-12 * norm);
  EXPECT_NEAR(result_.update.grad_norm, norm_of(at::cat(gradients)),
              1e-6 * result_.update.grad_norm);
  const std::int64_t padding = (128 - 64) * 32;  // elements of the padding rows of the vocabulary
  EXPECT_EQ(result_.update.num_zeros,
            at::cat(gradients).eq(0).sum().item<std::int64_t>() - padding);
}

TEST_F(PerLayerNormsTest, LayersStandInTheOrderOfTheModel) {
  const std::string text = per_layer_norms_text(table_, trainer_->plan.units, 7);
  EXPECT_THAT(text, testing::StartsWith(" layer norms at iteration 7\n"));
  std::size_t last = 0;
  for (const char* layer :
       {"embedding", "decoder.layers.0", "decoder.layers.1", "decoder.final_layernorm"}) {
    const std::size_t place = text.find(layer);
    ASSERT_NE(place, std::string::npos) << text;
    EXPECT_GT(place, last);
    last = place;
  }
}

}  // namespace
}  // namespace megatron
