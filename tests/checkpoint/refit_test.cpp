// Weights move bit for bit between any two meshes of one job.
#include "megatron/checkpoint/refit.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/random_layout.h"
#include "checkpoint/rank_run.h"
#include "megatron/checkpoint/slice_math.h"

namespace megatron {
namespace {

constexpr std::int64_t kRanks = 8;

/// The weights of a rank in a layout, without gradients.
struct MeshWeights {
  MeshWeights(const DataLayout& layout, const RunType& type, const Rank& rank,
              Communicators& communicators)
      : config(model_of(type)), stages(pipeline_layout(layout.config(), config.num_layers)) {
    model = make_gpt_model(config, rank,
                           {.vocab_pad_multiple = 8, .dtype = type.dtype, .layout = &stages});
    store = std::make_unique<ParamStore>(
        declared_parameters(*model),
        ParamStore::Options{.dtype = type.dtype,
                            .with_gradients = false,
                            .data_parallel = data_parallel_of(layout, rank, communicators),
                            .model = rank.model,
                            .experts = experts_of(layout, rank, communicators)});
  }
  void fill(double scale) const {
    for (const ParameterPiece& piece : store->kept_pieces())
      store->change_kept(piece, [&](const at::Tensor& flat) {
        flat.copy_(piece.of(expected_local(*piece.parameter, scale)));
      });
    store->end_changes();
  }
  /// Expects the values of fill(scale) in a store of dtype `from`.
  void expect_filled(double scale, at::ScalarType from, const std::string& what) const {
    for (const ParameterPiece& piece : store->kept_pieces()) {
      const Parameter& parameter = *piece.parameter;
      const at::Tensor expected = piece.of(expected_local(parameter, scale))
                                      .to(parameter.spec().dtype.value_or(from))
                                      .to(parameter.dtype());
      EXPECT_TRUE(at::equal(store->read_kept(piece), expected)) << what << ": " << parameter.name();
    }
  }

  TransformerConfig config;
  PipelineLayout stages;
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> store;
};

/// Moves weights between two layouts of 8 ranks. Returns the bytes that all ranks sent.
std::int64_t move_weights(const DataLayout& from, const DataLayout& to, const RunType& saved,
                          const RunType& loaded, std::int64_t round_bytes) {
  const std::string what = from.name() + " to " + to.name();
  const Mesh left = from.mesh(), right = to.mesh();
  std::atomic<std::int64_t> sent = 0;
  run_rank_threads(kRanks, [&](Communicators& communicators) {
    const Rank source = make_rank(left, communicators), target = make_rank(right, communicators);
    const MeshWeights trained(from, saved, source, communicators),
        generating(to, loaded, target, communicators);
    trained.fill(1);
    generating.fill(0.4);
    const ObjectGroup world{source.world};
    sent += refit(world, trained.store.get(), generating.store.get(), round_bytes);
    generating.expect_filled(1, saved.dtype, what);
    trained.fill(0.7);
    refit(world, trained.store.get(), generating.store.get(), round_bytes);
    generating.expect_filled(0.7, saved.dtype, what + ", again");
  });
  return sent;
}

TEST(Refit, MovesBetweenRandomPairsOfMeshes) {
  std::mt19937 random(7);
  for (int pair = 0; pair < 24; ++pair) {
    const DataLayout from = random_layout(random, /*has_experts=*/true),
                     to = random_layout(random, /*has_experts=*/true);
    const bool is_small = random() % 2 == 1;
    const std::vector<at::ScalarType> types{at::kFloat, at::kBFloat16};
    RunType saved{.is_tied = random() % 2 == 1, .has_experts = true}, loaded = saved;
    saved.dtype = pick(random, types);
    loaded.dtype = pick(random, types);
    move_weights(from, to, saved, loaded, is_small ? 1 : std::int64_t{1} << 20);
  }
}

TEST(Refit, SendsNothingThatARankHolds) {
  const RunType type{.has_experts = true};
  for (const DataLayout& layout :
       {DataLayout{.dp = 2, .tp = 2, .pp = 2, .ep = 2},
        DataLayout{.dp = 4, .tp = 2, .ep = 2, .zero_stage = 3}, DataLayout{.dp = 8}})
    EXPECT_EQ(move_weights(layout, layout, type, type, 1 << 20), 0) << layout.name();
  // All replicas of the source hold all, so each rank finds what it wants in its own memory.
  EXPECT_EQ(move_weights({.dp = 8}, {.dp = 2, .tp = 2, .pp = 2, .ep = 2}, type, type, 1 << 20), 0);
  EXPECT_GT(move_weights({.dp = 8, .zero_stage = 3}, {.dp = 8}, type, type, 1 << 20), 0);
}

// Four ranks train and the other four generate: each has weights of one mesh alone.
TEST(Refit, MovesBetweenDisjointRanks) {
  const DataLayout from{.tp = 2, .pp = 2}, to{.dp = 2, .tp = 2};
  const RunType saved{.dtype = at::kBFloat16}, loaded{};
  const Mesh left = from.mesh(), right = to.mesh();
  run_rank_threads(kRanks, [&](Communicators& communicators) {
    const Axis world = make_rank(Mesh({}, kRanks), communicators).world;
    const std::int64_t half = kRanks / 2, index = world.rank;
    if (index < half) {
      const MeshWeights trained(from, saved, make_rank(left, index), communicators);
      trained.fill(1);
      EXPECT_GT(refit({world}, trained.store.get(), nullptr), 0);
    } else {
      const MeshWeights generating(to, loaded, make_rank(right, index - half), communicators);
      EXPECT_EQ(refit({world}, nullptr, generating.store.get()), 0);
      generating.expect_filled(1, at::kBFloat16, "disjoint");
    }
  });
}

TEST(Refit, NamesWhatNoRankHoldsOnEveryRank) {
  run_rank_threads(2, [&](Communicators& communicators) {
    const DataLayout layout{.dp = 2};
    const Rank rank = make_rank(layout.mesh(), communicators);
    const MeshWeights tied(layout, {.is_tied = true}, rank, communicators),
        untied(layout, {}, rank, communicators);
    expect_user_error([&] { refit({rank.world}, tied.store.get(), untied.store.get()); },
                      {"no rank holds", "output_layer.weight"});
    refit({rank.world}, untied.store.get(), tied.store.get());
  });
}

/// Returns the slices of ranks [first, first + size), which divide a tensor over one axis.
ManifestTensor slices_of(const Sharding& sharding, std::int64_t first, std::int64_t size) {
  ManifestTensor all{.shape = sharding.global_shape};
  for (std::int64_t rank = 0; rank < size; ++rank) {
    const Axis axis{"tp", rank, size};
    for (const TensorSlice& slice : sharding.slices({&axis, 1}))
      all.pieces.push_back({.file = std::to_string(first + rank), .slice = slice});
  }
  return all;
}

TEST(Refit, PlansEachElementOnceAndAlikeOnBothRanks) {
  const Sharding shardings[] = {Sharding::split({24, 12}, 0), Sharding::split({24, 12}, 1),
                                Sharding::split({24, 12}, 0, {{4}, {1, false}, {1, false}}, 4),
                                Sharding::vocabulary({24, 12}, 5), Sharding::replicated({24, 12})};
  for (const Sharding& left : shardings) {
    for (const Sharding& right : shardings) {
      // Ranks 0 to 3 hold the tensor, 2 to 5 want it.
      const ManifestTensor held = slices_of(left, 0, 4), wanted = slices_of(right, 2, 4);
      std::map<std::int64_t, std::int64_t> filled, needed;
      for (const Piece& piece : wanted.pieces)
        needed[std::stoll(piece.file)] += num_elements(piece.slice.shape);
      std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Shape>> sent, received;
      for (std::int64_t rank = 0; rank < 6; ++rank) {
        for (const SliceMove& move : plan_moves(held, wanted, rank)) {
          if (move.from == rank) sent[{rank, move.to}].push_back(move.slice.global_offset);
          if (move.to == rank) {
            received[{move.from, rank}].push_back(move.slice.global_offset);
            filled[rank] += num_elements(move.slice.shape);
          }
        }
      }
      EXPECT_EQ(filled, needed);
      EXPECT_EQ(sent, received);
    }
  }
}

TEST(Refit, LetsReplicasTakeTurns) {
  const Sharding whole = Sharding::replicated({6});
  std::map<std::int64_t, int> sent;
  for (std::int64_t rank = 0; rank < 4; ++rank)
    for (const SliceMove& move : plan_moves(slices_of(whole, 0, 4), slices_of(whole, 4, 8), rank))
      if (move.from == rank) ++sent[rank];
  EXPECT_EQ(sent, (std::map<std::int64_t, int>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
}

}  // namespace
}  // namespace megatron
