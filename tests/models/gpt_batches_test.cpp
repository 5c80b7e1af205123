// The way a batch is divided must not matter: samples alone or together, documents packed or apart,
// weights on one rank or many.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/gradient_check.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

TransformerConfig small(PositionEmbedding positions) {
  TransformerConfig config = tiny_gpt();
  config.hidden_dropout = config.attention_dropout = 0.1;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.position_embedding_type = positions;
  config.init_method_std = 0.3;
  return config;
}

Microbatch make_batch(std::int64_t b, std::int64_t s) {
  Microbatch batch;
  const at::Tensor tokens = (at::arange(b * (s + 1)).square() * 7 % 13).view({b, s + 1});
  batch.tensors["tokens"] = tokens.narrow(1, 0, s).contiguous();
  batch.tensors["labels"] = tokens.narrow(1, 1, s).contiguous();
  batch.tensors["loss_mask"] = at::ones({b, s}, at::kFloat);
  batch.tensors["loss_mask"][0][1] = 0;
  batch.tensors["position_ids"] = at::arange(s).expand({b, s}).contiguous();
  batch.sample_ordinals = at::arange(b) + 5;
  return batch;
}

Microbatch sample_of(const Microbatch& batch, std::int64_t index) {
  Microbatch sample;
  for (const auto& [name, tensor] : batch.tensors)
    sample.tensors[name] = tensor.narrow(0, index, 1);
  sample.sample_ordinals = batch.sample_ordinals.narrow(0, index, 1);
  return sample;
}

class GptBatches : public testing::TestWithParam<PositionEmbedding> {};

TEST_P(GptBatches, GradientOfOneSampleEqualsCentralDifferences) {
  for (const double dropout : {0.0, 0.2}) {
    TransformerConfig config = small(GetParam());
    config.hidden_dropout = config.attention_dropout = dropout;
    const auto model = make_gpt_model(config, Rank{}, 8);
    ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
    store.initialize(3);
    const Microbatch batch = make_batch(1, 4);
    check_gradients([&] { return model->forward_step(batch, true).root; }, {}, &store,
                    {.tolerance = 1e-7, .max_elements = 4});
  }
}

TEST_P(GptBatches, SamplesOneByOneGiveTheGradientsOfTheBatch) {
  const auto model = make_gpt_model(small(GetParam()), Rank{}, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(3);
  const Microbatch batch = make_batch(3, 6);
  const auto gradients = [&](const std::vector<Microbatch>& parts) {
    store.zero_gradients();
    for (const Microbatch& part : parts) model->forward_step(part, true).root.backward();
    store.finalize_gradients();
    std::vector<at::Tensor> result;
    for (const Parameter* parameter : store.parameters())
      result.push_back(parameter->grad().clone());
    return result;
  };
  const auto whole = gradients({batch}),
             apart = gradients({sample_of(batch, 0), sample_of(batch, 1), sample_of(batch, 2)});
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_LT(difference(apart[i], whole[i]), 1e-12) << store.parameters()[i]->name();
}

TEST_P(GptBatches, PackedDocumentsEqualDocumentsAlone) {
  const auto model = make_gpt_model(small(GetParam()), Rank{}, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(3);
  Microbatch packed = make_batch(2, 7);
  const std::int64_t cuts[2] = {3, 4};  // the second document of each sample starts here
  packed.tensors["document_ids"] = at::zeros({2, 7}, at::kInt);
  std::vector<at::Tensor> alone(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    packed.tensors["document_ids"][i].narrow(0, cuts[i], 7 - cuts[i]).fill_(1);
    packed.tensors["position_ids"][i]
        .narrow(0, cuts[i], 7 - cuts[i])
        .copy_(at::arange(7 - cuts[i]));
    std::vector<at::Tensor> losses;
    for (const auto& [begin, count] :
         {std::pair<std::int64_t, std::int64_t>{0, cuts[i]}, {cuts[i], 7 - cuts[i]}}) {
      Microbatch document = sample_of(packed, i);
      document.tensors.erase("document_ids");
      for (auto& [name, tensor] : document.tensors) tensor = tensor.narrow(1, begin, count);
      losses.push_back(model->forward_step(document, false).token_losses);
    }
    alone[i] = at::cat(losses, 1);
  }
  EXPECT_LT(difference(model->forward_step(packed, false).token_losses, at::cat(alone, 0)), 1e-6);
}

/// Sequences of 5, 1 and 4 tokens in one row, with the ordinals 5, 2⁴⁰ + 5 and 6: losses and
/// gradients in training are those of three microbatches of one sequence, dropout masks included.
TEST_P(GptBatches, PackedSequencesTrainAsEachAlone) {
  const auto model = make_gpt_model(small(GetParam()), Rank{}, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(3);
  const std::vector<std::int64_t> cu_seqlens{0, 5, 6, 10};
  Microbatch packed = make_batch(1, 10);
  packed.sample_ordinals =
      at::tensor({packed_ordinal(5, 0), packed_ordinal(5, 1), packed_ordinal(6, 0)}, at::kLong);
  packed.packed = {.cu_seqlens = cu_seqlens, .num_samples = 2};
  std::vector<Microbatch> alone;
  for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const std::int64_t first = cu_seqlens[i], count = cu_seqlens[i + 1] - first;
    packed.tensors["position_ids"].narrow(1, first, count).copy_(at::arange(count));
    Microbatch& one = alone.emplace_back();
    for (const auto& [name, tensor] : packed.tensors)
      one.tensors[name] = tensor.narrow(1, first, count).contiguous();
    one.sample_ordinals = packed.sample_ordinals.narrow(0, static_cast<std::int64_t>(i), 1);
  }
  const auto train = [&](const std::vector<Microbatch>& parts) {
    store.zero_gradients();
    std::vector<at::Tensor> results;
    for (const Microbatch& part : parts) {
      const StepOutput output = model->forward_step(part, true);
      output.root.backward();
      results.push_back(output.token_losses.detach());
    }
    store.finalize_gradients();
    results = {at::cat(results, 1)};
    for (const Parameter* parameter : store.parameters())
      results.push_back(parameter->grad().clone());
    return results;
  };
  const auto together = train({packed}), apart = train(alone);
  EXPECT_LT(difference(together[0], apart[0]), 1e-6) << "losses, which are float32";
  for (std::size_t i = 1; i < apart.size(); ++i)
    EXPECT_LT(difference(together[i], apart[i]), 1e-12) << store.parameters()[i - 1]->name();
  EXPECT_GT(difference(train({[&] {
                         Microbatch same_masks = packed;
                         same_masks.sample_ordinals = at::full({3}, 5, at::kLong);
                         return same_masks;
                       }()})[0],
                       apart[0]),
            1e-6)
      << "the ordinals choose the masks";
}

INSTANTIATE_TEST_SUITE_P(Positions, GptBatches,
                         testing::Values(PositionEmbedding::learned_absolute,
                                         PositionEmbedding::rope, PositionEmbedding::none),
                         [](const auto& info) {
                           return info.param == PositionEmbedding::rope   ? "rope"
                                  : info.param == PositionEmbedding::none ? "none"
                                                                          : "learned";
                         });

TEST(GptShards, DrawTheWeightsOfTheWholeModel) {
  TransformerConfig config = small(PositionEmbedding::rope);
  config.gated_linear_unit = true;
  config.untie_embeddings_and_output_weights = true;
  const auto draw = [&](const Axis& tp, const std::function<void(const ParamStore&)>& use) {
    Rank rank;
    rank.tp = tp;
    const auto model = make_gpt_model(config, rank, 8);
    ParamStore store(declared_parameters(*model), {});
    store.initialize(9);
    use(store);
  };
  draw({}, [&](const ParamStore& whole) {
    for (const std::int64_t size : {2, 4}) {
      for (std::int64_t rank = 0; rank < size; ++rank) {
        draw({"tp", rank, size}, [&](const ParamStore& shard) {
          ASSERT_EQ(shard.parameters().size(), whole.parameters().size());
          for (const Parameter* mine : shard.parameters()) {
            const Parameter* full = whole.find(mine->name());
            ASSERT_NE(full, nullptr) << mine->name();
            for (const TensorSlice& slice : mine->slices()) {
              at::Tensor local = mine->value(), global = full->value();
              for (std::size_t d = 0; d < slice.shape.size(); ++d) {
                local = local.narrow(static_cast<std::int64_t>(d), slice.local_offset[d],
                                     slice.shape[d]);
                global = global.narrow(static_cast<std::int64_t>(d), slice.global_offset[d],
                                       slice.shape[d]);
              }
              EXPECT_TRUE(at::equal(local, global))
                  << mine->name() << " on rank " << rank << " of " << size;
            }
          }
        });
      }
    }
  });
}

}  // namespace
}  // namespace megatron
