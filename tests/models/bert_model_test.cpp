// BERT against megatron-core's BertModel in float64 (tests/parity/make_bert_fixtures.py).
#include "megatron/models/bert_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_family.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/tiny_gpt.h"

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

at::Tensor ids(const Json& values) {
  if (!values.front().is_array()) return at::tensor(values.get<std::vector<std::int64_t>>());
  std::vector<at::Tensor> rows;
  for (const Json& row : values) rows.push_back(ids(row));
  return at::stack(rows);
}

Microbatch batch_of(const Json& fields) {
  Microbatch batch;
  for (const auto& [name, values] : fields.items()) batch.tensors[name] = ids(values);
  const at::Tensor tokens = batch.at("tokens");
  batch.tensors["loss_mask"] = batch.at("loss_mask").to(at::kFloat);
  batch.tensors["position_ids"] = at::arange(tokens.size(1)).unsqueeze(0);
  const at::Tensor lengths = batch.at("padding_mask").sum(1);
  batch.tensors["document_ids"] = document_ids_of(
      {lengths.data_ptr<std::int64_t>(), lengths.data_ptr<std::int64_t>() + lengths.numel()},
      tokens.size(1));
  batch.sample_ordinals = at::arange(tokens.size(0));
  return batch;
}

TEST(BertModel, HasTheLossesAndGradientsOfMegatronCore) {
  const Json expected = read_json(MEGATRON_SOURCE_DIR "/tests/models/fixtures/bert.json");
  TransformerConfig config = tiny_gpt();
  config.hidden_dropout = config.attention_dropout = 0;
  const Rank rank;
  const auto model = find_model_family("bert").make(config, rank, {.vocab_pad_multiple = 1});
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(1);
  fill(store);
  store.zero_gradients();
  const StepOutput output = model->forward_step(batch_of(expected["batch"]), /*training=*/true);
  (output.root / output.count).backward();
  store.finalize_gradients();
  double sum = 0;
  ASSERT_EQ(output.terms.size(), expected["losses"].size());
  for (const LossTerm& term : output.terms) {
    const double loss = expected["losses"][term.name];
    EXPECT_NEAR((term.sum / term.count).item<double>(), loss, 1e-12) << term.name;
    sum += loss;
  }
  EXPECT_NEAR((output.root / output.count).item<double>(), sum, 1e-12);
  const Json& gradients = expected["gradients"];
  ASSERT_EQ(store.parameters().size(), gradients.size());
  for (const Parameter* parameter : store.parameters()) {
    ASSERT_TRUE(gradients.contains(parameter->name())) << parameter->name();
    const at::Tensor flat = parameter->grad().flatten(),
                     index = at::arange(flat.numel(), at::kDouble);
    const auto expect = [&](const at::Tensor& direction, const Json& value) {
      EXPECT_NEAR((flat * direction).sum().item<double>(), value.get<double>(), 1e-12)
          << parameter->name();
    };
    expect(at::sin(index * 0.9 + 0.2), gradients[parameter->name()][0]);
    expect(at::cos(index * 0.37), gradients[parameter->name()][1]);
  }
}

}  // namespace
}  // namespace megatron
