// Gradients of units share buffers: over the units of a backward pass and over microbatches.
#include "megatron/params/unit_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"

namespace megatron {
namespace {

constexpr std::int64_t kLayerSize = 4096, kEmbeddingSize = 4 * kLayerSize;
constexpr std::int64_t kLayerBytes = 4 * kLayerSize, kEmbeddingBytes = 4 * kEmbeddingSize;

/// An embedding, layers and an untied output layer, each a unit of its own.
struct UnitsModule : BareModule {
  UnitsModule() {
    units.push_back(&add("embedding", normal_spec({kEmbeddingSize})));
    for (const char* name : {"layer1", "layer2", "layer3"})
      units.push_back(&add(name, normal_spec({kLayerSize})));
    units.push_back(&add("output", normal_spec({kEmbeddingSize})));
  }
  std::vector<Parameter*> units;
};

ParamStore::Options sharded_gradients(const DataLayout& layout, const Rank& rank,
                                      Communicators& communicators,
                                      const std::vector<Parameter*>& units) {
  ParamStore::Options options{.data_parallel = data_parallel_of(layout, rank, communicators)};
  options.data_parallel.strategy = ShardingStrategy::optim_grads;
  options.unit_starts = {units.begin(), units.end()};
  return options;
}

/// What a rank saw in the backward passes of two steps with three microbatches each.
struct Seen {
  std::int64_t most_bytes = 0;
  std::set<const void*> layer_buffers, embedding_buffers;
};

Seen train(ParamStore& store, const std::vector<Parameter*>& units, double mine) {
  constexpr int kMicrobatches = 3;
  Seen seen;
  for (int step = 0; step < 2; ++step) {
    store.zero_gradients(kMicrobatches);
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
        Parameter& parameter = **unit;
        const Shape shape = parameter.local_shape();
        parameter.contribute(at::full(shape, mine));
        (num_elements(shape) == kLayerSize ? seen.layer_buffers : seen.embedding_buffers)
            .insert(parameter.grad().data_ptr());
        seen.most_bytes = std::max(seen.most_bytes, store.unit_bytes());
      }
      store.end_backward();
    }
    store.finalize_gradients();
  }
  return seen;
}

TEST(UnitGradients, UnitsAndMicrobatchesShareBuffers) {
  for (const bool overlap : {false, true}) {
    const DataLayout layout{.dp = 2, .distributed_optimizer = true, .overlap = overlap};
    on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
      UnitsModule model;
      ParamStore store(declared_parameters(model),
                       sharded_gradients(layout, rank, communicators, model.units));
      const Seen seen = train(store, model.units, 1.0 + static_cast<double>(rank.dp.rank));
      const std::size_t layers_in_use = overlap ? 2 : 1;  // one waits for its reduction
      EXPECT_EQ(seen.layer_buffers.size(), layers_in_use);
      EXPECT_EQ(seen.embedding_buffers.size(), 1u) << "of the output layer and the embedding";
      EXPECT_EQ(seen.most_bytes,
                kEmbeddingBytes + static_cast<std::int64_t>(layers_in_use) * kLayerBytes);
      store.gather_gradients();
      for (const Parameter* unit : model.units)
        EXPECT_TRUE((unit->grad() == 3 * (1 + 2)).all().item<bool>());
    });
  }
}

}  // namespace
}  // namespace megatron
