// A checkpoint of any layout and precision loads bit for bit at any other, including the optimizer.
// All ranks commit one folder together, or none.
//
// The fast set loads each layout's checkpoint at two others; MEGATRON_TEST_LAYOUTS=all loads it at
// all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "checkpoint/fault_injection_file_system.h"
#include "checkpoint/random_layout.h"
#include "checkpoint/rank_run.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

const DataLayout kLayouts[] = {
    {},
    {.dp = 2},
    {.dp = 2, .distributed_optimizer = true},
    {.dp = 3, .distributed_optimizer = true, .bucket_elements = 700},
    {.tp = 2},
    {.tp = 4},
    {.dp = 2, .tp = 2, .distributed_optimizer = true, .overlap = true, .bucket_elements = 700},
    {.dp = 4, .distributed_optimizer = true, .instances = 2},
    {.pp = 2},
    {.pp = 4},
    {.pp = 2, .stages = "Et|t|t|tL"},
    {.pp = 2, .schedule = "zb-v"},
    {.tp = 2, .pp = 2},
    {.dp = 2, .distributed_optimizer = true, .bucket_elements = 700, .pp = 2},
    {.dp = 2, .distributed_optimizer = true, .pp = 4, .stages = "E|tt||ttL"},
    {.cp = 2},
    {.tp = 2, .distributed_optimizer = true, .bucket_elements = 700, .cp = 2},
    {.distributed_optimizer = true, .pp = 2, .cp = 4},
    {.dp = 2, .distributed_optimizer = true, .cp = 3},
};

/// Layouts of a model with experts: they are divided over other ranks than the dense layers.
const DataLayout kExpertLayouts[] = {
    {},
    {.dp = 2, .tp = 2, .ep = 4, .etp = 1},
    {.dp = 4, .distributed_optimizer = true, .ep = 2, .etp = 2},
    {.dp = 4, .distributed_optimizer = true, .overlap = true, .bucket_elements = 700, .ep = 2},
    {.dp = 2, .tp = 2, .distributed_optimizer = true, .pp = 2, .ep = 2},
    {.tp = 2, .ep = 1, .etp = 1},
    {.dp = 4, .pp = 2, .schedule = "zb-v", .ep = 4}};

void save_at(const DataLayout& layout, const RunType& type, const std::filesystem::path& root) {
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(layout, type, rank, communicators);
    run.fill();
    save_checkpoint(root, run.request());
  });
}

/// Expects that every element is written exactly once.
void expect_written_once(const std::filesystem::path& root, const std::string& what) {
  const std::filesystem::path folder = root / "iter_0000005";
  EXPECT_THAT(verify_folder(folder), testing::IsEmpty()) << what;
  for (const auto& [name, tensor] : read_manifest(folder).tensors) {
    std::int64_t written = 0;
    for (const Piece& piece : tensor.pieces) written += num_elements(piece.slice.shape);
    EXPECT_EQ(written, num_elements(tensor.shape)) << what << ": " << name;
  }
}

void expect_loads_at(const DataLayout& layout, const RunType& type,
                     const std::filesystem::path& root, const std::string& what) {
  const auto source = find_checkpoint(root);
  ASSERT_TRUE(source.has_value()) << what;
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(layout, type, rank, communicators);
    load_weights(*source, *run.store, run.optimizer->main_parameters());
    load_optimizer(*source, *run.optimizer);
    run.expect_filled(what + " at " + layout.name());
  });
}

bool wants_all() {
  const char* wanted = std::getenv("MEGATRON_TEST_LAYOUTS");
  return wanted != nullptr && std::string(wanted) == "all";
}

using Types = std::pair<at::ScalarType, at::ScalarType>;
class LayoutCheckpoint : public testing::TestWithParam<std::tuple<Types, bool>> {};

TEST_P(LayoutCheckpoint, EveryLayoutLoadsEveryOther) {
  const auto& [types, is_tied] = GetParam();
  const RunType saved{types.first, is_tied}, loaded{types.second, is_tied};
  for (std::size_t i = 0; i < std::size(kLayouts); ++i) {
    const std::string what = "from " + kLayouts[i].name();
    TemporaryFolder folder;
    save_at(kLayouts[i], saved, folder.path());
    expect_written_once(folder.path(), what);
    for (std::size_t distance = 0; distance < std::size(kLayouts); ++distance) {
      if (distance != 1 && distance != std::size(kLayouts) / 2 && !wants_all()) continue;
      expect_loads_at(kLayouts[(i + distance) % std::size(kLayouts)], loaded, folder.path(), what);
    }
  }
}

TEST(LayoutCheckpoint, ExpertsOfEveryLayoutLoadInEveryOther) {
  const RunType type{.has_experts = true};
  for (const DataLayout& from : kExpertLayouts) {
    TemporaryFolder folder;
    save_at(from, type, folder.path());
    expect_written_once(folder.path(), from.name());
    for (const DataLayout& to : kExpertLayouts)
      expect_loads_at(to, type, folder.path(), "from " + from.name());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LayoutCheckpoint,
                         testing::Combine(testing::Values(Types{at::kFloat, at::kFloat},
                                                          Types{at::kBFloat16, at::kBFloat16},
                                                          Types{at::kFloat, at::kBFloat16},
                                                          Types{at::kBFloat16, at::kFloat}),
                                          testing::Bool()));

/// Expects the weights alone, as a release or a Hugging Face directory has them.
void expect_weights_at(const DataLayout& layout, const RunType& type, at::ScalarType stored,
                       const fs::path& root, const std::string& what) {
  const auto source = find_checkpoint(root);
  ASSERT_TRUE(source.has_value()) << what;
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(layout, type, rank, communicators);
    load_weights(*source, *run.store, run.optimizer->main_parameters());
    for (const ParameterPiece& piece : run.store->kept_pieces()) {
      const Parameter& parameter = *piece.parameter;
      const at::Tensor expected =
          piece.of(expected_local(parameter, 1)).to(stored).to(parameter.dtype());
      EXPECT_TRUE(at::equal(run.store->read_kept(piece), expected))
          << what << ": " << parameter.name();
    }
  });
}

// A seeded list: layouts and ZeRO stages on both sides, and a format in between.
TEST(LayoutCheckpoint, RandomPairsLoadThroughEveryFormat) {
  std::mt19937 random(11);
  const std::vector<at::ScalarType> types{at::kFloat, at::kBFloat16};
  for (const char* format : {"native", "torch_dist", "megatron", "hf"}) {
    const bool has_states = std::string(format) == "native" || std::string(format) == "torch_dist";
    for (int pair = 0; pair < (wants_all() ? 25 : 4); ++pair) {
      RunType saved{.is_tied = random() % 2 == 1, .has_experts = has_states && pair % 2 == 1};
      const DataLayout from = random_layout(random, saved.has_experts),
                       to = random_layout(random, saved.has_experts);
      RunType loaded = saved;
      saved.dtype = pick(random, types);
      loaded.dtype = pick(random, types);
      const std::string what = std::string(format) + " from " + from.name() + " to " + to.name();
      SCOPED_TRACE(what);
      const TemporaryFolder folder;
      save_at(from, saved, folder / "run");
      expect_written_once(folder / "run", what);
      if (std::string(format) == "native") {
        expect_loads_at(to, loaded, folder / "run", what);
        continue;
      }
      convert_checkpoint({.load = folder / "run", .save = folder / "other", .format = format});
      if (has_states) {
        expect_loads_at(to, loaded, folder / "other", what);
      } else {
        expect_weights_at(to, loaded, saved.dtype, folder / "other", what);
      }
    }
  }
}

TEST(LayoutCheckpoint, WhatRanksShareIsWrittenOnceAndByAll) {
  TemporaryFolder folder;
  save_at({.dp = 2, .tp = 4}, {}, folder.path());
  const Manifest manifest = read_manifest(folder.path() / "iter_0000005");
  std::map<std::string, std::int64_t> by_file;
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const Piece& piece : tensor.pieces) by_file[piece.file] += num_elements(piece.slice.shape);
  }
  EXPECT_THAT(by_file.size(), testing::Ge(12u)) << "the ranks share the work";
}

/// Returns the bytes that each rank verifies when it loads the weights at a layout.
std::vector<std::uint64_t> verified_at(const DataLayout& layout, const fs::path& root) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(layout.world_size()));
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(layout, {}, rank, communicators);
    ManifestReader reader(root / "iter_0000005");
    fill_store(reader, "the checkpoint", *run.store);
    bytes[static_cast<std::size_t>(rank.index)] = reader.verified_bytes();
  });
  return bytes;
}

TEST(LayoutCheckpoint, OneOfTheReplicasReads) {
  TemporaryFolder folder;
  save_at({}, {}, folder.path());
  std::uint64_t all = 0;
  for (const auto& [name, tensor] : read_manifest(folder.path() / "iter_0000005").tensors)
    if (tensor.kind == TensorKind::weight)
      all += static_cast<std::uint64_t>(num_elements(tensor.shape)) * element_size(tensor.type);
  EXPECT_THAT(verified_at({}, folder.path()), testing::ElementsAre(all));
  EXPECT_THAT(verified_at({.dp = 3}, folder.path()), testing::ElementsAre(all, 0, 0));
  EXPECT_THAT(verified_at({.dp = 2, .distributed_optimizer = true}, folder.path()),
              testing::ElementsAre(all, 0))
      << "weights are whole on each";
  // Ranks 0 and 1 hold the first stage, 2 and 3 the second.
  const auto stages = verified_at({.dp = 2, .pp = 2}, folder.path());
  EXPECT_EQ(stages[0] + stages[2], all);
  EXPECT_EQ(stages[1] + stages[3], 0u);
}

/// Expects that only the lock file is left below the root.
void expect_nothing(const std::filesystem::path& root) {
  for (const auto& entry : std::filesystem::directory_iterator(root))
    EXPECT_EQ(entry.path().filename(), ".lock") << entry.path();
}

TEST(LayoutCheckpoint, OneRanksFullDiskFailsAllAndLeavesNothing) {
  for (const std::int64_t bad : {0, 1, 2}) {
    TemporaryFolder folder;
    const DataLayout layout{.dp = 3, .distributed_optimizer = true};
    on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
      RankRun run(layout, {}, rank, communicators);
      run.fill();
      struct Full : FileSystem {
        ssize_t write(int, const void*, std::size_t) override {
          errno = ENOSPC;
          return -1;
        }
      } full;
      try {
        save_checkpoint(folder.path(), run.request(rank.index == bad ? &full : nullptr));
        ADD_FAILURE() << "rank " << rank.index << " took the save for done";
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("No space left on device"));
        const std::string whose = rank.index == bad ? "" : "rank " + std::to_string(bad) + ": ";
        EXPECT_THAT(error.what(), testing::HasSubstr(whose));
      }
    });
    expect_nothing(folder.path());
  }
}

}  // namespace
}  // namespace megatron
