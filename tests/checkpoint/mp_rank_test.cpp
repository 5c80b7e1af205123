#include "megatron/checkpoint/megatron_lm/mp_rank.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "checkpoint/expect_user_error.h"
#include "megatron/base/json.h"
#include "megatron/formats/pickle_writer.h"

namespace megatron {
namespace {

constexpr const char* kQkv = "decoder.layers.0.self_attention.linear_qkv.weight";

RankTensor float_tensor(Shape shape) {
  const std::int64_t count = num_elements(shape);
  RankTensor tensor{.shape = std::move(shape)};
  tensor.states[""] = {.dtype = {"float32", 4}, .runs = {{.file = "a", .count = count}}};
  return tensor;
}

/// Describes the embedding and one projection to 4 queries and `num_groups` keys and values.
Manifest describe_rank(double version, std::int64_t num_groups) {
  const Json args = {{"num_layers", 1},
                     {"hidden_size", 16},
                     {"num_attention_heads", 4},
                     {"group_query_attention", num_groups < 4},
                     {"num_query_groups", num_groups},
                     {"max_position_embeddings", 8}};
  const Json state = {{"args", pickle_object("argparse.Namespace", args)},
                      {"checkpoint_version", version}};
  const Pickle pickle(pickle_of(state), "state");
  RankTensors tensors;
  tensors["embedding.word_embeddings.weight"] = float_tensor({32, 16});
  tensors[kQkv] = float_tensor({(4 + 2 * num_groups) * 4, 16});
  return describe_rank_models("folder", pickle.root(), {tensors});
}

TEST(RankModels, OldLayoutsOfQueriesKeysAndValuesHaveNoGroups) {
  EXPECT_FALSE(describe_rank(3, 2).tensors.at(kQkv).pieces.empty());
  EXPECT_EQ(describe_rank(0, 4).tensors.at(kQkv).pieces.size(), 12u);  // runs of a head
  EXPECT_EQ(describe_rank(1, 4).tensors.at(kQkv).pieces.size(), 48u);  // rows
  for (const double version : {0.0, 1.0})
    expect_user_error([&] { describe_rank(version, 2); },
                      {"linear_qkv", "has no query groups", "checkpoint_version 3"});
}

}  // namespace
}  // namespace megatron
