// Attention to the blocks of a KV cache has the bits of attention to all keys in one tensor.
#include "megatron/ops/kv_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/core_attention.h"

namespace megatron {
namespace {

constexpr std::int64_t kHeads = 4, kGroups = 2, kChannels = 24, kValueChannels = 40;

/// Queries, keys and values of the tokens of a text.
struct Text {
  Text(std::int64_t length, int seed, c10::ScalarType type) {
    const auto make = [&](std::int64_t heads, std::int64_t channels, double pace) {
      return at::sin(at::arange(length * heads * channels, at::kDouble).add(seed).mul(pace))
          .mul(2)
          .view({length, 1, heads, channels})
          .to(type);
    };
    inputs = {make(kHeads, kChannels, 0.37), make(kGroups, kChannels, 0.91),
              make(kGroups, kValueChannels, 1.73)};
  }
  AttentionInputs rows(std::int64_t begin, std::int64_t end) const {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, end - begin); };
    return {part(inputs.q), part(inputs.k), part(inputs.v)};
  }
  /// Returns attention of tokens [begin, end) to all until then.
  at::Tensor attention(std::int64_t begin, std::int64_t end, AttentionOptions options) const {
    options.q_start = begin;
    const AttentionInputs seen = rows(0, end);
    return core_attention(seen.q.narrow(0, begin, end - begin), seen.k, seen.v, options).out;
  }
  AttentionInputs inputs;
};

/// Runs the next tokens of each text through a layer, and returns whether the result is what they
/// give without a cache.
bool pass_is_right(const std::vector<const Text*>& texts, const Caches& caches,
                   const std::vector<std::int64_t>& counts, const AttentionOptions& options,
                   std::string_view layer = "layer") {
  std::vector<at::Tensor> q, k, v, expected;
  std::vector<std::int64_t> begins{0};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::int64_t begin = caches[i]->length, end = begin + counts[i];
    const AttentionInputs rows = texts[i]->rows(begin, end);
    q.push_back(rows.q), k.push_back(rows.k), v.push_back(rows.v);
    expected.push_back(texts[i]->attention(begin, end, options));
    begins.push_back(begins.back() + counts[i]);
  }
  const at::Tensor out = cached_attention({at::cat(q), at::cat(k), at::cat(v)}, options,
                                          whole_placement(begins.back(), begins), caches, layer);
  for (std::size_t i = 0; i < texts.size(); ++i) caches[i]->length += counts[i];
  const at::Tensor all = at::cat(expected);
  return out.scalar_type() == at::kDouble ? at::allclose(out, all, 1e-12, 1e-12)
                                          : at::equal(out, all);
}

/// Appends the keys and values of tokens, which are not counted.
void append(const AttentionInputs& rows, SequenceCache& cache) {
  cached_attention({{}, rows.k, rows.v}, {}, whole_placement(rows.k.size(0), {}), {&cache},
                   "layer");
}

AttentionOptions some_options() {
  AttentionOptions options;
  options.scale = 0.3;
  options.window = {150, 0};
  options.softcap = 5;
  options.sinks = at::sin(at::arange(kHeads, at::kFloat));
  return options;
}

TEST(CachedAttention, EqualsAttentionToAllKeys) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const AttentionOptions& options : {AttentionOptions{.scale = 0.2}, some_options()}) {
      const Text first(400, 1, type), second(400, 2, type), third(400, 3, type);
      std::vector<SequenceCache> sequences(3);
      const Caches caches{&sequences[0], &sequences[1], &sequences[2]};
      for (const auto& counts : std::vector<std::vector<std::int64_t>>{
               {130, 1, 77}, {1, 1, 1}, {1, 126, 51}, {3, 1, 1}, {120, 1, 2}, {1, 200, 100}})
        EXPECT_TRUE(pass_is_right({&first, &second, &third}, caches, counts, options)) << type;
    }
  }
}

TEST(CachedAttention, QueriesMayBeThoseOfSomeRows) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const AttentionOptions& options : {AttentionOptions{.scale = 0.2}, some_options()}) {
      const Text first(400, 1, type), second(400, 2, type);
      std::vector<SequenceCache> sequences(2);
      const Caches caches{&sequences[0], &sequences[1]};
      ASSERT_TRUE(pass_is_right({&first, &second}, caches, {130, 3}, options));
      const AttentionInputs a = first.rows(130, 330), b = second.rows(3, 63);
      SequencePlacement placement = whole_placement(260, {0, 200, 260});
      placement.runs_of = {{{10, 30}, {150, 70}}};
      const at::Tensor q = at::cat(
                           {a.q.narrow(0, 10, 30), a.q.narrow(0, 150, 50), b.q.narrow(0, 0, 20)}),
                       out = cached_attention({q, at::cat({a.k, b.k}), at::cat({a.v, b.v})},
                                              options, placement, caches, "layer"),
                       expected = at::cat({first.attention(140, 170, options),
                                           first.attention(280, 330, options),
                                           second.attention(3, 23, options)});
      EXPECT_TRUE(type == at::kDouble ? at::allclose(out, expected, 1e-12, 1e-12)
                                      : at::equal(out, expected))
          << type;
      for (SequenceCache& cache : sequences) cache.length = cache.length == 3 ? 63 : 330;
      EXPECT_TRUE(pass_is_right({&first, &second}, caches, {1, 7}, options)) << type;
      placement = whole_placement(2, {0, 1, 2});
      placement.runs_of.front().clear();
      const AttentionInputs last = first.rows(331, 333);
      EXPECT_EQ(cached_attention({last.q.narrow(0, 0, 0), last.k, last.v}, options, placement,
                                 caches, "layer")
                    .sizes(),
                at::IntArrayRef({0, 1, kHeads * kValueChannels}));
    }
  }
}

TEST(CachedAttention, BlocksMayHaveAnyNumbersAndBeShared) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const AttentionOptions options{.scale = 0.2};
    const auto memory = std::make_shared<CacheMemory>();
    const Text text(400, 1, type);
    SequenceCache writer(memory), reader(memory);
    writer.blocks = {5, 0, 9, 2};
    ASSERT_TRUE(pass_is_right({&text}, {&writer}, {300}, options));
    reader.blocks = {5, 0, 7, 11};
    reader.length = 256;  // the prefix is that of the writer
    EXPECT_TRUE(pass_is_right({&text, &text}, {&reader, &writer}, {20, 1}, options));
    EXPECT_TRUE(pass_is_right({&text, &text}, {&reader, &writer}, {1, 99}, options));
    EXPECT_THROW(append(text.rows(0, 200), writer), InternalError);
  }
}

TEST(CacheMemory, NeverHasMoreBlocksThanItMay) {
  CacheMemory memory({.max_blocks = 5});
  LayerBlocks& blocks = memory.layer("layer", {.bytes = 64});
  for (std::int32_t number = 0; number < 5; ++number) blocks.reach(number);
  EXPECT_EQ(blocks.count(), 5);
  EXPECT_THROW(blocks.reach(5), InternalError);
}

TEST(CachedAttention, In8BitsDoesNotDependOnCutsAndOnOthers) {
  const AttentionOptions options{.scale = 0.2};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const KvCacheType cache_type : {KvCacheType::int8, KvCacheType::fp8_e4m3}) {
      const auto memory = std::make_shared<CacheMemory>(CacheMemoryOptions{.type = cache_type});
      const Text text(300, 1, type), other(300, 2, type);
      const AttentionInputs first = text.rows(0, 300), second = other.rows(0, 300);
      SequenceCache whole(memory), pieces(memory), beside(memory);
      whole.blocks = {0, 1, 2}, pieces.blocks = {3, 4, 5}, beside.blocks = {6, 7, 8};
      const at::Tensor expected =
          cached_attention(first, options, whole_placement(300, {}), {&whole}, "layer");
      std::vector<at::Tensor> parts;
      for (const std::int64_t count : {130, 1, 77, 1, 91}) {
        const std::int64_t begin = pieces.length;
        const auto both = [&](const at::Tensor& a, const at::Tensor& b) {
          return at::cat({b.narrow(0, begin, count), a.narrow(0, begin, count)});
        };
        parts.push_back(cached_attention({both(first.q, second.q), both(first.k, second.k),
                                          both(first.v, second.v)},
                                         options, whole_placement(2 * count, {0, count, 2 * count}),
                                         {&beside, &pieces}, "layer")
                            .narrow(0, count, count));
        beside.length = pieces.length += count;
      }
      EXPECT_TRUE(at::equal(at::cat(parts), expected)) << type;
      // tests/kernels/attention_test.cpp has the bound of the error. Values are below 2.
      EXPECT_TRUE(at::allclose(expected.to(at::kDouble),
                               text.attention(0, 300, options).to(at::kDouble), 0,
                               cache_type == KvCacheType::int8 ? 0.1 : 0.6))
          << type;
    }
  }
}

TEST(CachedAttention, RefusesACacheIn8BitsWithoutAKernel) {
  SequenceCache cache(std::make_shared<CacheMemory>(CacheMemoryOptions{.type = KvCacheType::int8}));
  cache.blocks = {0};
  EXPECT_THROW(append(Text(3, 1, at::kDouble).rows(0, 3), cache), UserError);
}

TEST(CachedAttention, KeepsLatentsAsKeysAndValues) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    Text text(200, 1, type);
    text.inputs.v = text.inputs.k.narrow(-1, 0, 16);
    SequenceCache cache;
    const AttentionOptions options{.scale = 0.2};
    append(text.rows(0, 140), cache);
    cache.length = 140;
    const AttentionInputs rows = text.rows(140, 200);
    const at::Tensor out = cached_attention({rows.q, rows.k, rows.k.narrow(-1, 0, 16)}, options,
                                            whole_placement(60, {}), {&cache}, "layer");
    EXPECT_TRUE(at::allclose(out, text.attention(140, 200, options), 1e-12, 1e-12)) << type;
    EXPECT_EQ(cache.memory().layers().at("layer").size().elements_per_token,
              kGroups * (type == at::kDouble ? kChannels : kChannels + 16));
  }
}

TEST(SequenceCache, DropsTokens) {
  const Text text(400, 1, at::kBFloat16), other(400, 2, at::kBFloat16);
  const AttentionOptions options{.scale = 0.2};
  SequenceCache cache;
  ASSERT_TRUE(pass_is_right({&text}, {&cache}, {140}, options));
  append(other.rows(0, 200), cache);
  for (const std::int64_t length : {140, 133, 20}) {
    cache.length = length;
    EXPECT_TRUE(pass_is_right({&text}, {&cache}, {1}, options));
    EXPECT_TRUE(pass_is_right({&text}, {&cache}, {150}, options));
  }
}

struct State : LayerCache {
  int value = 0;
};

TEST(SequenceCache, ForksHaveStatesOfTheirOwn) {
  SequenceCache cache;
  cache.of_layer<State>("layer").value = 3;
  SequenceCache fork = cache.fork();
  cache.of_layer<State>("layer").value = 4;
  EXPECT_EQ(fork.of_layer<State>("layer").value, 3);
}

TEST(SequenceCache, RefusesALayerOfAnotherKind) {
  struct Other : LayerCache {};
  SequenceCache cache;
  cache.of_layer<State>("decoder.layers.2");
  EXPECT_NO_THROW(cache.of_layer<Other>("decoder.layers.0"));
  EXPECT_NO_THROW(cache.of_layer<State>("decoder.layers.2"));
  EXPECT_THROW(cache.of_layer<Other>("decoder.layers.2"), InternalError);
}

TEST(SequenceCache, SeparatesTheLayersOfTwoStacks) {
  SequenceCache cache;
  LayerCache& encoder = cache.of_layer<State>("encoder.layers.0.self_attention");
  LayerCache& decoder = cache.of_layer<State>("decoder.layers.0.self_attention");
  EXPECT_NE(&encoder, &decoder);
  EXPECT_EQ(&encoder, &cache.of_layer<State>("encoder.layers.0.self_attention"));
}

TEST(CacheMemory, BlocksStayWhereTheyAre) {
  CacheMemory memory;
  LayerBlocks& blocks = memory.layer("layer", {.bytes = 128, .elements_per_token = 1});
  blocks.reach(2);
  EXPECT_EQ(blocks.count(), 4);
  const std::vector<char*> before(blocks.addresses(), blocks.addresses() + 3);
  blocks.reach(20);
  EXPECT_EQ(std::vector<char*>(blocks.addresses(), blocks.addresses() + 3), before);
  for (std::int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(blocks.block(i).data_ptr(), blocks.addresses()[i]) << i;
    blocks.block(i).fill_(i);
  }
  memory.copy_block(7, memory, 2);
  memory.copy_block(7, memory, 40);
  EXPECT_TRUE(at::equal(blocks.block(2), blocks.block(7)));
  EXPECT_TRUE(at::equal(blocks.block(40), blocks.block(7)));
  EXPECT_THROW(memory.layer("layer", {.bytes = 64, .elements_per_token = 1}), InternalError);
  CacheMemory swap({.device = at::kCPU});
  memory.copy_block(7, swap, 1);
  blocks.block(7).zero_();
  swap.copy_block(1, memory, 3);
  EXPECT_TRUE(at::equal(blocks.block(3), blocks.block(40)));
}

}  // namespace
}  // namespace megatron
