// A checkpoint of any layout and precision loads at any other, optimizer included, bit for bit; many ranks commit one folder, or none.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/faulty_disk.h"
#include "checkpoint/temporary_folder.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/manifest.h"
#include "support/data_parallel_ranks.h"
#include "support/global_tensor.h"

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
};

/// Numbers with all the bits of float32, the same for an element of the global tensor on every layout.
at::Tensor expected_local(const Parameter& parameter, double scale) {
  const at::Tensor global = irregular_like(parameter, scale).to(at::kFloat);
  const at::Tensor local = at::zeros(parameter.local_shape(), at::kFloat);
  for_each_box(parameter, local, global, [](at::Tensor mine, const at::Tensor& whole) { mine.copy_(whole); });
  return local;
}

double scale_of(const std::string& state) { return state == "exp_avg" ? 0.3 : 0.7; }

/// A rank's model, weights and optimizer.
struct RankRun {
  RankRun(const DataLayout& layout, at::ScalarType type, const Rank& rank, Communicators& communicators) : place(rank) {
    settings.model = tiny_llama();
    settings.optimizer.optimizer = "adam";
    model = make_gpt_model(settings.model, rank, 8);
    store = std::make_unique<ParamStore>(
        *model, ParamStore::Options{
                    .dtype = type, .grad_dtype = at::kFloat, .data_parallel = data_parallel_of(layout, rank, communicators), .model = rank.model});
    optimizer = make_optimizer(settings.optimizer, *store);
  }
  void fill() {
    MainParameters& main = optimizer->main_parameters();
    for (std::size_t i = 0; i < main.tensors().size(); ++i)
      main.tensors()[i].copy_(main.pieces()[i].of(expected_local(*main.pieces()[i].parameter, 1)));
    main.write_weights();
    optimizer->visit_state([](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
      flat.copy_(piece.of(expected_local(*piece.parameter, scale_of(state))));
    });
    optimizer->set_num_steps(7);
  }
  void expect_filled(const std::string& what) {
    for (const Parameter* parameter : store->parameters()) {
      const at::Tensor expected = expected_local(*parameter, 1);
      EXPECT_TRUE(at::equal(parameter->value(), expected.to(parameter->value().scalar_type()))) << what << ": " << parameter->name();
      const at::Tensor precise = parameter->spec().tags.precise ? parameter->precise_value().to(at::kFloat) : expected;
      EXPECT_TRUE(at::equal(precise, expected)) << what << ": precise " << parameter->name();
    }
    MainParameters& main = optimizer->main_parameters();
    for (std::size_t i = 0; i < main.tensors().size(); ++i) {
      const Parameter& parameter = *main.pieces()[i].parameter;
      EXPECT_TRUE(at::equal(main.tensors()[i], main.pieces()[i].of(expected_local(parameter, 1)))) << what << ": main " << parameter.name();
    }
    optimizer->visit_state([&](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
      EXPECT_TRUE(at::equal(flat, piece.of(expected_local(*piece.parameter, scale_of(state))))) << what << ": " << state;
    });
    EXPECT_EQ(optimizer->num_steps(), 7);
  }
  SaveRequest request(FileSystem* files = nullptr) const {
    return {.model = &settings.model,
            .settings = &settings,
            .weights = store.get(),
            .optimizer = optimizer.get(),
            .progress = {.iteration = 5},
            .files = files,
            .world = place.world};
  }

  Rank place;
  Settings settings;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

void save_at(const DataLayout& layout, at::ScalarType type, const std::filesystem::path& root) {
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(layout, type, rank, communicators);
    run.fill();
    save_checkpoint(root, run.request());
  });
}

void expect_loads_at(const DataLayout& layout, at::ScalarType type, const std::filesystem::path& root, const std::string& what) {
  const auto source = find_checkpoint(root);
  ASSERT_TRUE(source.has_value()) << what;
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(layout, type, rank, communicators);
    load_weights(*source, *run.store, run.optimizer->main_parameters());
    load_optimizer(*source, *run.optimizer);
    run.expect_filled(what + " at " + layout.name());
  });
}

class LayoutCheckpoint : public testing::TestWithParam<std::pair<at::ScalarType, at::ScalarType>> {};

TEST_P(LayoutCheckpoint, EveryLayoutLoadsEveryOther) {
  const auto [saved_type, loaded_type] = GetParam();
  const bool is_change = saved_type != loaded_type;
  for (std::size_t i = 0; i < std::size(kLayouts); ++i) {
    TemporaryFolder folder;
    save_at(kLayouts[i], saved_type, folder.path());
    // All pairs in one precision; across precisions each layout with the next.
    for (std::size_t j = 0; j < std::size(kLayouts); ++j) {
      if (is_change && j != (i + 1) % std::size(kLayouts)) continue;
      expect_loads_at(kLayouts[j], loaded_type, folder.path(), "from " + kLayouts[i].name());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LayoutCheckpoint,
                         testing::Values(std::pair{at::kFloat, at::kFloat}, std::pair{at::kBFloat16, at::kBFloat16},
                                         std::pair{at::kFloat, at::kBFloat16}, std::pair{at::kBFloat16, at::kFloat}));

TEST(LayoutCheckpoint, WhatRanksShareIsWrittenOnceAndByAll) {
  TemporaryFolder folder;
  save_at({.dp = 2, .tp = 4}, at::kFloat, folder.path());
  const Manifest manifest = read_manifest(folder.path() / "iter_0000005");
  std::map<std::string, std::int64_t> by_file;
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const Piece& piece : tensor.pieces) by_file[piece.file] += num_elements(piece.region.shape);
  }
  EXPECT_THAT(by_file.size(), testing::Ge(12u)) << "the ranks share the work";
}

/// Nothing but the lock is left below the root.
void expect_nothing(const std::filesystem::path& root) {
  for (const auto& entry : std::filesystem::directory_iterator(root)) EXPECT_EQ(entry.path().filename(), ".lock") << entry.path();
}

TEST(LayoutCheckpoint, OneRanksFullDiskFailsAllAndLeavesNothing) {
  for (const std::int64_t bad : {0, 1, 2}) {
    TemporaryFolder folder;
    const DataLayout layout{.dp = 3, .distributed_optimizer = true};
    on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
      RankRun run(layout, at::kFloat, rank, communicators);
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
