// BERT against megatron-core's BertModel in float64 (tests/parity/make_bert_fixtures.py).
#include "megatron/models/bert_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
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

/// Returns the batch with so many more positions of padding.
Microbatch batch_of(const Json& fields, std::int64_t padding) {
  Microbatch batch;
  for (const auto& [name, values] : fields.items()) {
    at::Tensor& tensor = batch.tensors[name] = ids(values);
    if (tensor.dim() > 1)
      tensor = at::cat({tensor, at::ones({tensor.size(0), padding}, at::kLong)}, 1);
  }
  const at::Tensor tokens = batch.at("tokens"),
                   lengths = ids(fields["padding_mask"]).sum(1).contiguous();
  const auto* const first = lengths.const_data_ptr<std::int64_t>();
  batch.tensors["loss_mask"] = batch.at("loss_mask").to(at::kFloat);
  batch.at("loss_mask").narrow(1, tokens.size(1) - padding, padding).zero_();
  batch.tensors["position_ids"] = at::arange(tokens.size(1)).unsqueeze(0);
  batch.tensors["document_ids"] = document_ids_of({first, first + lengths.numel()}, tokens.size(1));
  batch.sample_ordinals = at::arange(tokens.size(0));
  return batch;
}

/// Returns the batch with one row of the samples' tokens, and so many rows of padding behind them.
Microbatch without_padding(Microbatch batch, std::int64_t rows_of_padding) {
  const at::Tensor is_padding = batch.at("document_ids").ne(0);
  const at::Tensor padding = is_padding.flatten().nonzero().flatten().narrow(0, 0, rows_of_padding),
                   tokens = is_padding.logical_not(),
                   rows = at::cat({tokens.flatten().nonzero().flatten(), padding});
  PackedSequences packed{.cu_seqlens = {0},
                         .num_samples = tokens.size(0),
                         .padded_length = tokens.size(1),
                         .hybrid = {}};
  for (std::int64_t i = 0; i < tokens.size(0); ++i)
    packed.cu_seqlens.push_back(packed.cu_seqlens.back() + tokens[i].sum().item<std::int64_t>());
  if (rows_of_padding > 0) {
    packed.cu_seqlens.push_back(rows.numel());
    batch.sample_ordinals = at::cat({batch.sample_ordinals, batch.sample_ordinals.narrow(0, 0, 1)});
  }
  batch.tensors.erase("document_ids");
  for (auto& [name, tensor] : batch.tensors)
    if (tensor.dim() > 1)
      tensor = tensor.expand(tokens.sizes()).flatten().index_select(0, rows).unsqueeze(0);
  batch.packed = std::move(packed);
  return batch;
}

/// Compares with megatron-core's model, whose samples have less padding, and whose positions have
/// the rows from the offset on. With `rows_of_padding` the batch has only so many.
void expect_megatron_core(std::int64_t padding, std::int64_t offset,
                          std::optional<std::int64_t> rows_of_padding = {}) {
  const Json expected = read_json(MEGATRON_SOURCE_DIR "/tests/models/fixtures/bert.json");
  TransformerConfig config = tiny_gpt();
  config.hidden_dropout = config.attention_dropout = 0;
  config.max_position_embeddings += padding + offset;
  config.position_offset = offset;
  const Rank rank;
  const auto model = find_model_family("bert").make(config, rank, {.vocab_pad_multiple = 1});
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(1);
  fill(store);
  const auto own_rows = [&](const Parameter& parameter, const at::Tensor& value) {
    const bool has_offset = parameter.name() == "embedding.position_embeddings.weight";
    return has_offset ? value.narrow(0, offset, value.size(0) - offset) : value;
  };
  const Parameter* const positions = store.find("embedding.position_embeddings.weight");
  const at::Tensor rows = positions->value().clone();
  own_rows(*positions, positions->value()).copy_(rows.narrow(0, 0, rows.size(0) - offset));
  store.zero_gradients();
  const Microbatch padded = batch_of(expected["batch"], padding);
  const StepOutput output = model->forward_step(
      rows_of_padding ? without_padding(padded, *rows_of_padding) : padded, /*training=*/true);
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
    const at::Tensor flat = own_rows(*parameter, parameter->grad()).flatten(),
                     index = at::arange(flat.numel(), at::kDouble);
    const auto expect = [&](const at::Tensor& direction, const Json& value) {
      EXPECT_NEAR((flat * direction).sum().item<double>(), value.get<double>(), 1e-12)
          << parameter->name();
    };
    expect(at::sin(index * 0.9 + 0.2), gradients[parameter->name()][0]);
    expect(at::cos(index * 0.37), gradients[parameter->name()][1]);
  }
}

TEST(BertModel, HasTheLossesAndGradientsOfMegatronCore) { expect_megatron_core(0, 0); }
TEST(BertModel, PaddingChangesNothing) { expect_megatron_core(4, 0); }
TEST(BertModel, NeedsNoPadding) {
  for (const std::int64_t rows : {0, 3}) expect_megatron_core(4, 0, rows);
}

/// Also attention draws the numbers of the padded samples.
TEST(BertModel, WithoutPaddingDropoutIsTheSame) {
  const Microbatch padded =
      batch_of(read_json(MEGATRON_SOURCE_DIR "/tests/models/fixtures/bert.json")["batch"], 0);
  const TransformerConfig config = tiny_gpt();
  const Rank rank;
  const auto model = find_model_family("bert").make(config, rank, {.vocab_pad_multiple = 1});
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(1);
  std::map<std::string, at::Tensor> expected;
  at::Tensor loss;
  for (const Microbatch& batch : {padded, without_padding(padded, 2)}) {
    store.zero_gradients();
    const StepOutput output = model->forward_step(batch, /*training=*/true);
    output.root.backward();
    store.finalize_gradients();
    if (!loss.defined()) loss = output.root.detach();
    EXPECT_NEAR(output.root.item<double>(), loss.item<double>(), 1e-12);
    for (const Parameter* parameter : store.parameters()) {
      const at::Tensor& first =
          expected.try_emplace(parameter->name(), parameter->grad().clone()).first->second;
      EXPECT_LE((parameter->grad() - first).abs().max().item<double>(), 1e-12) << parameter->name();
    }
  }
}

TEST(BertModel, PositionsMayBeginBehindTheFirstRow) { expect_megatron_core(0, 2); }

}  // namespace
}  // namespace megatron
