#include "megatron/ops/kv_cache.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

TEST(LayerKvCache, GrowsAndKeepsItsPast) {
  const at::Tensor keys = at::arange(300 * 6).view({300, 1, 2, 3}).to(at::kFloat), values = -keys;
  LayerKvCache cache;
  const auto append = [&](std::int64_t begin, std::int64_t end) {
    const auto [all_keys, all_values] = cache.append(keys.narrow(0, begin, end - begin),
                                                     values.narrow(0, begin, end - begin), begin);
    EXPECT_TRUE(at::equal(all_keys, keys.narrow(0, 0, end))) << "up to " << end;
    EXPECT_TRUE(at::equal(all_values, values.narrow(0, 0, end))) << "up to " << end;
  };
  append(0, 10);
  for (std::int64_t i = 10; i < 290; ++i) append(i, i + 1);
  append(290, 300);
  append(5, 7);  // later positions are dropped
  append(7, 200);
}

TEST(SequenceCache, RefusesALayerOfAnotherKind) {
  struct State : LayerCache {};
  SequenceCache cache;
  cache.of_layer<LayerKvCache>("decoder.layers.2");
  EXPECT_NO_THROW(cache.of_layer<State>("decoder.layers.0"));
  EXPECT_NO_THROW(cache.of_layer<LayerKvCache>("decoder.layers.2"));
  EXPECT_THROW(cache.of_layer<State>("decoder.layers.2"), InternalError);
}

TEST(SequenceCache, SeparatesTheLayersOfTwoStacks) {
  SequenceCache cache;
  LayerCache& encoder = cache.of_layer<LayerKvCache>("encoder.layers.0.self_attention");
  LayerCache& decoder = cache.of_layer<LayerKvCache>("decoder.layers.0.self_attention");
  EXPECT_NE(&encoder, &decoder);
  EXPECT_EQ(&encoder, &cache.of_layer<LayerKvCache>("encoder.layers.0.self_attention"));
}

}  // namespace
}  // namespace megatron
