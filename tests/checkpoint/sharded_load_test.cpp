// A tensor written by any number of ranks loads on any other number. The values are compared with
// index arithmetic on the global tensor.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/expect_user_error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

Axis rank_of(std::int64_t rank, std::int64_t size) { return {"tp", rank, size}; }

at::Tensor numbered(const Shape& shape) {
  return at::arange(num_elements(shape), at::kFloat).view(shape);
}

/// Returns the rank's tensor by Sharding's slices; rows beyond the vocabulary are zero.
at::Tensor local_of(const at::Tensor& global, const Sharding& sharding, const Axis& axis) {
  at::Tensor local = at::zeros(sharding.local_shape({&axis, 1}));
  for (const TensorSlice& slice : sharding.slices({&axis, 1}))
    narrow_to(local, slice.local_offset, slice.shape)
        .copy_(narrow_to(global, slice.global_offset, slice.shape));
  return local;
}

/// Writes the tensor as `ranks` ranks do, one file per rank.
void write_as(std::int64_t ranks, const at::Tensor& global, const Sharding& sharding,
              const fs::path& folder) {
  Manifest manifest;
  manifest.model = manifest.settings = Json::object();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Axis axis = rank_of(rank, ranks);
    const at::Tensor local = local_of(global, sharding, axis);
    std::vector<WriteItem> pieces;
    for (const TensorSlice& slice : sharding.slices({&axis, 1})) {
      pieces.push_back(
          {.name = "w",
           .global_shape = sharding.global_shape,
           .slice = slice,
           .tensor = [part = narrow_to(local, slice.local_offset, slice.shape)] { return part; }});
    }
    write_shard_files(folder, {.rank = rank}, std::move(pieces), manifest);
  }
  write_file_atomically(folder / kManifestFile, manifest_text(manifest));
}

at::Tensor load_on(ManifestReader& reader, const Sharding& sharding, const Axis& axis) {
  at::Tensor local = at::full(sharding.local_shape({&axis, 1}), -1.0f);
  Parameter parameter("w", {.sharding = sharding, .init = Init::zeros(), .tags = {}}, {axis});
  fill_piece(reader, whole_piece(parameter), "w", local.view({-1}));
  return local;
}

void expect_rows(const at::Tensor& local, const at::Tensor& global,
                 const std::vector<std::int64_t>& rows) {
  ASSERT_EQ(local.size(0), static_cast<std::int64_t>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const at::Tensor expected = rows[i] < 0 ? at::zeros_like(local[0]) : global[rows[i]];
    EXPECT_TRUE(local[static_cast<std::int64_t>(i)].equal(expected)) << "row " << i;
  }
}

TEST(ShardedLoad, SplitsPlainRowsAndColumns) {
  const TemporaryFolder folder;
  const at::Tensor global = numbered({8, 12});
  write_as(1, global, Sharding::replicated({8, 12}), folder.path());
  ManifestReader reader(folder.path());
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    expect_rows(load_on(reader, Sharding::split({8, 12}, 0), rank_of(rank, 4)), global,
                {2 * rank, 2 * rank + 1});
    EXPECT_TRUE(load_on(reader, Sharding::split({8, 12}, 1), rank_of(rank, 4))
                    .equal(global.narrow(1, 3 * rank, 3)));
  }
}

// There are four query groups of two query heads, a key and a value, one row each. Each of four
// ranks holds one group.
TEST(ShardedLoad, SplitsQueryGroups) {
  const TemporaryFolder folder;
  const at::Tensor global = numbered({16, 3});
  const Sharding sharding = Sharding::split({16, 3}, 0, {{2}, {1, false}, {1, false}}, 4);
  write_as(1, global, sharding, folder.path());
  ManifestReader reader(folder.path());
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    expect_rows(load_on(reader, sharding, rank_of(rank, 4)), global,
                {4 * rank, 4 * rank + 1, 4 * rank + 2, 4 * rank + 3});
  }
}

// There are two groups of four query heads on four ranks. Queries are split; key and value are
// replicated on the two ranks that share a group.
TEST(ShardedLoad, ReplicatesKeysOfSharedGroups) {
  const TemporaryFolder folder;
  const at::Tensor global = numbered({12, 2});
  const Sharding sharding = Sharding::split({12, 2}, 0, {{4}, {1, false}, {1, false}}, 2);
  write_as(1, global, sharding, folder.path());
  ManifestReader reader(folder.path());
  expect_rows(load_on(reader, sharding, rank_of(0, 4)), global, {0, 1, 4, 5});
  expect_rows(load_on(reader, sharding, rank_of(1, 4)), global, {2, 3, 4, 5});
  expect_rows(load_on(reader, sharding, rank_of(3, 4)), global, {8, 9, 10, 11});
}

TEST(ShardedLoad, SplitsGateAndUp) {
  const TemporaryFolder folder;
  const at::Tensor global = numbered({16, 2});
  const Sharding sharding = Sharding::split({16, 2}, 0, {{8}, {8}});
  write_as(2, global, sharding, folder.path());
  ManifestReader reader(folder.path());
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    expect_rows(load_on(reader, sharding, rank_of(rank, 4)), global,
                {2 * rank, 2 * rank + 1, 8 + 2 * rank, 9 + 2 * rank});
  }
}

// 10 rows are padded to 4 rows on each of four ranks. The third rank holds two rows and two of
// padding, the fourth only padding.
TEST(ShardedLoad, LeavesVocabularyPaddingZero) {
  const TemporaryFolder folder;
  const at::Tensor global = numbered({10, 2}).add_(1);
  const Sharding sharding = Sharding::vocabulary({10, 2}, 4);
  write_as(1, global, sharding, folder.path());
  ManifestReader reader(folder.path());
  expect_rows(load_on(reader, sharding, rank_of(1, 4)), global, {4, 5, 6, 7});
  expect_rows(load_on(reader, sharding, rank_of(2, 4)), global, {8, 9, -1, -1});
  expect_rows(load_on(reader, sharding, rank_of(3, 4)), global, {-1, -1, -1, -1});
}

/// Changes a byte of the last number in a file.
void damage(const fs::path& path) {
  std::string content = read_file(path);
  content[content.size() - 2] = static_cast<char>(content[content.size() - 2] ^ 1);
  write_file_atomically(path, content);
}

TEST(ShardedLoad, VerifiesTheChecksumOfEverySlice) {
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const TemporaryFolder folder;
    write_as(4, numbered({8, 12}), Sharding::split({8, 12}, 0), folder.path());
    const std::string file = "weights_0000" + std::to_string(rank) + ".safetensors";
    damage(folder / file);
    ManifestReader reader(folder.path());
    expect_user_error(
        [&] {
          load_on(reader, Sharding::replicated({8, 12}), rank_of(0, 1));
        },
        {file, "tensor 'w'", "checksum"}, file);
    EXPECT_EQ(verify_folder(folder.path()).size(), 1u);
  }
}

// Each index of the first axis of a piece of 2 x 20 x 2 MiB has 2.5 blocks. Four ranks want five
// rows of each, which are 10 MiB, and verify the blocks that hold these, not those in between.
TEST(ShardedLoad, VerifiesTheBlocksOfASliceOfALaterAxis) {
  const TemporaryFolder folder;
  constexpr std::int64_t kRow = std::int64_t{2} << 20, kRowsOfABlock = 8;
  const Shape shape{2, 20, kRow / 4};
  const at::Tensor global = numbered(shape);
  write_as(1, global, Sharding::replicated(shape), folder.path());
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    std::set<std::int64_t> blocks;
    for (const std::int64_t index : {0, 1})
      for (std::int64_t row = 5 * rank; row < 5 * (rank + 1); ++row)
        blocks.insert((20 * index + row) / kRowsOfABlock);
    ManifestReader reader(folder.path());
    EXPECT_TRUE(load_on(reader, Sharding::split(shape, 1), rank_of(rank, 4))
                    .equal(global.narrow(1, 5 * rank, 5)));
    EXPECT_LT(blocks.size(), 5u);
    EXPECT_EQ(reader.verified_bytes(), blocks.size() * kRowsOfABlock * kRow) << rank;
  }
}

// A piece of 40 rows of 1 MiB has blocks of 16, 16 and 8 rows. Each of four ranks wants ten rows
// and verifies the blocks that hold them.
TEST(ShardedLoad, VerifiesTheBlocksOfASlice) {
  const TemporaryFolder folder;
  constexpr std::uint64_t kRow = std::uint64_t{1} << 20, kRows[] = {16, 32, 16, 24};
  const Shape shape{40, kRow / sizeof(float)};
  const at::Tensor global = numbered(shape);
  write_as(1, global, Sharding::replicated(shape), folder.path());
  const auto load = [&](ManifestReader& reader, std::int64_t rank) {
    return load_on(reader, Sharding::split(shape, 0), rank_of(rank, 4));
  };
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    ManifestReader reader(folder.path());
    EXPECT_TRUE(load(reader, rank).equal(global.narrow(0, 10 * rank, 10)));
    EXPECT_EQ(reader.verified_bytes(), kRows[rank] * kRow) << rank;
    load(reader, rank);
    EXPECT_EQ(reader.verified_bytes(), kRows[rank] * kRow) << "once";
  }
  ManifestReader reader(folder.path());
  load_on(reader, Sharding::split(shape, 1), rank_of(1, 4));
  EXPECT_EQ(reader.verified_bytes(), 40 * kRow) << "a part of each row";
  EXPECT_TRUE(verify_folder(folder.path()).empty());

  damage(folder / "weights_00000.safetensors");
  ManifestReader damaged(folder.path());
  EXPECT_TRUE(load(damaged, 2).equal(global.narrow(0, 20, 10))) << "whose block is whole";
  expect_user_error([&] { load(damaged, 3); }, {"tensor 'w'", "checksum"});
  EXPECT_EQ(verify_folder(folder.path()).size(), 1u);
}

TEST(ShardedLoad, ReshardsBetweenAnyTwoNumbersOfRanks) {
  const Sharding shardings[] = {Sharding::split({8, 12}, 0), Sharding::split({8, 12}, 1),
                                Sharding::split({16, 2}, 0, {{8}, {8}}),
                                Sharding::split({16, 3}, 0, {{2}, {1, false}, {1, false}}, 4),
                                Sharding::vocabulary({10, 2}, 4)};
  for (const Sharding& sharding : shardings) {
    const at::Tensor global = numbered(sharding.global_shape);
    for (const std::int64_t from : {1, 2, 4}) {
      const TemporaryFolder folder;
      write_as(from, global, sharding, folder.path());
      ManifestReader reader(folder.path());
      EXPECT_TRUE(load_on(reader, Sharding::replicated(sharding.global_shape), rank_of(0, 1))
                      .equal(global));
      for (const std::int64_t to : {1, 2, 4}) {
        for (std::int64_t rank = 0; rank < to; ++rank) {
          EXPECT_TRUE(load_on(reader, sharding, rank_of(rank, to))
                          .equal(local_of(global, sharding, rank_of(rank, to))));
        }
      }
    }
  }
}

TEST(ShardedLoad, BoundsTheSizeOfAFile) {
  const TemporaryFolder folder;
  Manifest manifest;
  std::vector<WriteItem> pieces;
  for (const char* name : {"a", "b", "c"}) {
    pieces.push_back({.name = name, .global_shape = {4}, .slice = whole_slice({4}), .tensor = [] {
                        return numbered({4});
                      }});
  }
  write_shard_files(folder.path(), {.prefix = "weights", .rank = 2, .max_shard_bytes = 40},
                    std::move(pieces), manifest);
  EXPECT_EQ(manifest.tensors.at("b").pieces[0].file, "weights_00002.safetensors");
  EXPECT_EQ(manifest.tensors.at("c").pieces[0].file, "weights_00002_001.safetensors");
}

}  // namespace
}  // namespace megatron
