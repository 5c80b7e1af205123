// A checkpoint of any layout and precision loads bit for bit at any other, including the optimizer.
// All ranks commit one folder together, or none.
//
// The fast set loads each layout's checkpoint at two others; MEGATRON_TEST_LAYOUTS=all loads it at
// all others.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/fault_injection_file_system.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/verify.h"
#include "megatron/config/pipeline_layout.h"
#include "support/data_parallel_ranks.h"
#include "support/global_tensor.h"
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

struct RunType {
  at::ScalarType dtype = at::kFloat;
  bool is_tied = false, has_experts = false;
};

TransformerConfig model_of(const RunType& type) {
  TransformerConfig model = tiny_llama();
  model.num_layers = 4;
  model.untie_embeddings_and_output_weights = !type.is_tied;
  if (type.has_experts) {
    model.add_bias_linear = true;
    model.moe.num_experts = 4;
    model.moe.layers = {0, 1, 1, 0};
    model.moe.ffn_hidden_size = 8;
    model.moe.shared_expert_intermediate_size = 8;
    model.moe.shared_expert_gate = true;
    model.moe.router_score_function = RouterScore::sigmoid;
    model.moe.router_enable_expert_bias = true;
  }
  return model;
}

/// Values that use all bits of float32 and depend only on the element of the global tensor, not on
/// the layout.
at::Tensor expected_local(const Parameter& parameter, double scale) {
  const at::Tensor global = irregular_like(parameter, scale).to(at::kFloat);
  const at::Tensor local = at::zeros(parameter.local_shape(), at::kFloat);
  for_each_slice(parameter, local, global,
                 [](at::Tensor mine, const at::Tensor& whole) { mine.copy_(whole); });
  return local;
}

double scale_of(const std::string& state) { return state == "exp_avg" ? 0.3 : 0.7; }

std::optional<ReplicaGroups> experts_of(const DataLayout& layout, const Rank& rank,
                                        Communicators& communicators) {
  if (rank.ep.size == 1 && rank.etp.size == rank.tp.size) return std::nullopt;
  ReplicaGroups groups = expert_groups(layout.config(), rank, &communicators);
  groups.data_parallel.bucket_elements = layout.bucket_elements;
  return groups;
}

/// One rank's model, weights and optimizer.
struct RankRun {
  RankRun(const DataLayout& layout, const RunType& type, const Rank& rank,
          Communicators& communicators)
      : place(rank), stages(pipeline_layout(layout.config(), model_of(type).num_layers)) {
    settings.model = model_of(type);
    settings.optimizer.optimizer = "adam";
    model = make_gpt_model(settings.model, rank,
                           {.vocab_pad_multiple = 8, .dtype = type.dtype, .layout = &stages});
    store = std::make_unique<ParamStore>(
        declared_parameters(*model),
        ParamStore::Options{.dtype = type.dtype,
                            .grad_dtype = at::kFloat,
                            .data_parallel = data_parallel_of(layout, rank, communicators),
                            .model = rank.model,
                            .experts = experts_of(layout, rank, communicators)});
    optimizer = make_optimizer(settings.optimizer, *store);
  }
  void fill() {
    MainParameters& main = optimizer->main_parameters();
    for (std::size_t i = 0; i < main.tensors().size(); ++i)
      main.tensors()[i].copy_(main.pieces()[i].of(expected_local(*main.pieces()[i].parameter, 1)));
    main.copy_main_params_to_model_params();
    for (Parameter* parameter : store->parameters()) {
      if (!parameter->is_trained())
        at::Tensor(parameter->value()).copy_(expected_local(*parameter, 1));
    }
    optimizer->visit_state(
        [](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
          flat.copy_(piece.of(expected_local(*piece.parameter, scale_of(state))));
        });
    optimizer->set_num_steps(7);
  }
  void expect_filled(const std::string& what) {
    for (const Parameter* parameter : store->parameters()) {
      const at::Tensor expected = expected_local(*parameter, 1);
      EXPECT_TRUE(at::equal(parameter->value(), expected.to(parameter->value().scalar_type())))
          << what << ": " << parameter->name();
      const at::Tensor precise =
          parameter->spec().tags.precise ? parameter->precise_value().to(at::kFloat) : expected;
      EXPECT_TRUE(at::equal(precise, expected)) << what << ": precise " << parameter->name();
    }
    MainParameters& main = optimizer->main_parameters();
    for (std::size_t i = 0; i < main.tensors().size(); ++i) {
      const Parameter& parameter = *main.pieces()[i].parameter;
      EXPECT_TRUE(at::equal(main.tensors()[i], main.pieces()[i].of(expected_local(parameter, 1))))
          << what << ": main " << parameter.name();
    }
    optimizer->visit_state(
        [&](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
          EXPECT_TRUE(at::equal(flat, piece.of(expected_local(*piece.parameter, scale_of(state)))))
              << what << ": " << state;
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
  PipelineLayout stages;
  Settings settings;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

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
