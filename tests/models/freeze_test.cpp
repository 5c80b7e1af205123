#include "megatron/models/freeze.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/message_of.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

OptimizerConfig freezing(std::vector<std::string> freeze,
                         std::vector<std::string> train_only = {}) {
  OptimizerConfig config;
  config.freeze = std::move(freeze);
  config.train_only = std::move(train_only);
  return config;
}

std::vector<std::string> trained_names(const OptimizerConfig& config) {
  const auto model = make_gpt_model(tiny_gpt(), Rank{});
  freeze_parameters(*model, config);
  std::vector<std::string> names;
  for (const Parameter* parameter : declared_parameters(*model))
    if (parameter->is_trained()) names.push_back(parameter->name());
  return names;
}

TEST(Freeze, TrainOnlyComesFirst) {
  EXPECT_THAT(trained_names(freezing({"bias$", "linear_(proj|fc2)"}, {"layers[.]1[.]mlp"})),
              ElementsAre("decoder.layers.1.mlp.linear_fc1.layer_norm_weight",
                          "decoder.layers.1.mlp.linear_fc1.weight"));
}

/// Gradients of one microbatch by name, with what `config` says frozen.
std::map<std::string, at::Tensor> gradients(const OptimizerConfig& config) {
  const auto model = make_gpt_model(tiny_gpt(), Rank{});
  freeze_parameters(*model, config);
  ParamStore store(declared_parameters(*model), {});
  store.initialize(3);
  store.zero_gradients();
  model->forward_step(patterned_batch(2, 6, 13), /*training=*/true).root.backward();
  store.finalize_gradients();
  std::map<std::string, at::Tensor> result;
  for (const Parameter* parameter : store.parameters())
    if (parameter->grad().defined()) result[parameter->name()] = parameter->grad().clone();
  return result;
}

/// As in PyTorch, where requires_grad is false.
TEST(Freeze, TheOtherGradientsKeepTheirBits) {
  const auto all = gradients({});
  for (const char* frozen : {"^embedding|layers[.]0", "layers[.]1", "norm", "mlp.*weight"}) {
    const auto some = gradients(freezing({frozen}));
    EXPECT_LT(some.size(), all.size());
    for (const auto& [name, gradient] : some)
      EXPECT_TRUE(at::equal(gradient, all.at(name))) << name << " without " << frozen;
  }
}

TEST(Freeze, CountsParametersByUnit) {
  const auto model = make_gpt_model(tiny_gpt(), Rank{});
  const std::string table = freeze_whole_model(*model, freezing({"layers[.]0[.]", "final"}));
  // A final norm of 12 weights and 12 biases.
  EXPECT_THAT(table, HasSubstr("\n  final layernorm                     0               24\n"));
  EXPECT_THAT(table, HasSubstr("\n  layer 1 "));
  EXPECT_EQ(freeze_whole_model(*model, {}), "");
}

TEST(Freeze, RefusesExpressionsWithoutEffectAndFullFreezing) {
  const auto model = make_gpt_model(tiny_gpt(), Rank{});
  const auto message = [&](const OptimizerConfig& config) {
    return message_of([&] { freeze_whole_model(*model, config); });
  };
  EXPECT_THAT(message(freezing({"^decoder.layers.1.mlp.linear_fc1.wieght$"})),
              HasSubstr("decoder.layers.1.mlp.linear_fc1.weight"));
  EXPECT_THAT(message(freezing({}, {"layers[.]7[.]"})),
              HasSubstr("--train-only 'layers[.]7[.]': matches no parameter"));
  EXPECT_THAT(
      message(freezing({"("})),
      testing::AllOf(StartsWith("--freeze: the regular expression"), HasSubstr("in \"(\"")));
  EXPECT_THAT(message(freezing({}, {"["})), StartsWith("--train-only: the regular expression"));
  EXPECT_THAT(message(freezing({"."})), HasSubstr("leave nothing to train"));
}

TEST(ModelUnits, KnowTheirLayer) {
  TransformerConfig config = tiny_gpt();
  make_llama(config);
  const auto model = make_gpt_model(config, Rank{});
  std::vector<std::string> titles;
  for (const ModelUnit& unit : model_units(*model)) titles.push_back(unit.title());
  EXPECT_THAT(titles,
              ElementsAre("embedding", "layer 0", "layer 1", "final layernorm", "output layer"));
}

}  // namespace
}  // namespace megatron
