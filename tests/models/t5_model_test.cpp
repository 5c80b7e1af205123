// T5's two stacks against megatron-core's T5Model and the T5 models of transformers, in float64
// (tests/parity/make_t5_fixtures.py).
#include "megatron/models/t5_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/model_family.h"
#include "megatron/nn/relative_positions.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"

namespace megatron {
namespace {

/// Sets weight i of the k-th name to sin(1.7·i + k)/5, and those of norms to 1 more.
void fill(const ParamStore& store) {
  std::map<std::string, at::Tensor> weights;
  for (const Parameter* parameter : store.parameters())
    weights.emplace(parameter->name(), parameter->value());
  double k = 0;
  for (auto& [name, value] : weights) {
    const bool is_norm = name.find("norm") != std::string::npos && name.ends_with("weight");
    const at::Tensor index = at::arange(value.numel(), at::kDouble);
    value.copy_((at::sin(index * 1.7 + k++) / 5 + (is_norm ? 1 : 0)).view(value.sizes()));
  }
}

Microbatch batch_of(const Json& fields) {
  Microbatch batch;
  for (const auto& [name, values] : fields.items()) {
    std::vector<at::Tensor> rows;
    for (const Json& row : values) rows.push_back(at::tensor(row.get<std::vector<std::int64_t>>()));
    batch.tensors[name] = at::stack(rows);
  }
  batch.tensors["loss_mask"] = batch.at("loss_mask").to(at::kFloat);
  batch.per_position = {"text_enc", "text_dec"};
  batch.sample_ordinals = at::arange(batch.at("labels").size(0));
  return batch;
}

/// The model of a case of the fixture: an encoder of one layer and a decoder of two.
TransformerConfig config_of(const std::string& name) {
  TransformerConfig config;
  config.num_layers = 3;
  config.decoder_num_layers = 2;
  config.hidden_size = 12;
  config.num_attention_heads = 4;
  config.kv_channels = 4;
  config.ffn_hidden_size = 20;
  config.vocab_size = 13;
  config.max_position_embeddings = 8;
  config.hidden_dropout = config.attention_dropout = 0;
  config.add_output_bias = true;
  if (name == "rope") config.position_embedding_type = PositionEmbedding::rope;
  if (name.find("t5") != std::string::npos) {
    config.position_embedding_type = PositionEmbedding::relative;
    config.relative_attention_num_buckets = 6;
    config.relative_attention_max_distance = 5;
    config.relative_attention_per_layer = name == "umt5";
    config.normalization = Normalization::RMSNorm;
    config.norm_epsilon = 1e-6;
    config.softmax_scale = 1;
    config.add_bias_linear = config.add_output_bias = false;
    config.gated_linear_unit = name != "t5";
    config.activation = name == "t5" ? Activation::relu : Activation::gelu_tanh;
    if (name == "t5" || name == "umt5") config.logit_scale = 1 / std::sqrt(12.0);
  }
  resolve(config);
  return config;
}

class T5Model : public testing::TestWithParam<const char*> {};

TEST_P(T5Model, HasTheLossAndGradientsOfItsPeer) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/models/fixtures/t5.json");
  const Json& expected = fixture["cases"][GetParam()];
  // megatron-core's rotary tables are float32.
  const double tolerance = std::string(GetParam()) == "rope" ? 5e-6 : 1e-11;
  const TransformerConfig config = config_of(GetParam());
  const Rank rank;
  const auto model = find_model_family("t5").make(config, rank, {.vocab_pad_multiple = 1});
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(1);
  fill(store);
  store.zero_gradients();
  const StepOutput output = model->forward_step(batch_of(fixture["batch"]), /*training=*/true);
  const at::Tensor loss = output.root / output.count;
  loss.backward();
  store.finalize_gradients();
  EXPECT_NEAR(loss.item<double>(), expected["loss"].get<double>(), tolerance);
  const Json& gradients = expected["gradients"];
  EXPECT_EQ(store.parameters().size(), gradients.size());
  for (const Parameter* parameter : store.parameters()) {
    ASSERT_TRUE(gradients.contains(parameter->name())) << parameter->name();
    const at::Tensor flat = parameter->grad().flatten(),
                     index = at::arange(flat.numel(), at::kDouble);
    const auto expect = [&](const at::Tensor& direction, const Json& value) {
      EXPECT_NEAR((flat * direction).sum().item<double>(), value.get<double>(), tolerance)
          << parameter->name();
    };
    expect(at::sin(index * 0.9 + 0.2), gradients[parameter->name()][0]);
    expect(at::cos(index * 0.37), gradients[parameter->name()][1]);
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, T5Model,
                         testing::Values("learned", "rope", "t5", "t5_gated", "mt5", "umt5"));

TEST(RelativeBuckets, AreThoseOfThePaper) {
  const auto buckets = [](bool is_bidirectional) {
    const at::Tensor found = relative_buckets(6, 8, 6, is_bidirectional);
    return std::vector<std::int64_t>(found.const_data_ptr<std::int64_t>(),
                                     found.const_data_ptr<std::int64_t>() + found.numel());
  };
  // Both ways, four buckets each: 0, 1, 2 for the distances up to 3, and 3 up to 6 and beyond.
  EXPECT_EQ(buckets(true), (std::vector<std::int64_t>{3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7}));
  // Backward only: one bucket for each distance up to 4, and logarithmically behind.
  EXPECT_EQ(buckets(false), (std::vector<std::int64_t>{6, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace megatron
