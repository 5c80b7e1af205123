// Checkpoints of parameters that are not trained: frozen weights have no optimizer state, and the
// state of a layer is saved beside the weights.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/fault_injection_file_system.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_writer.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/shard_writer.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "support/bare_module.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// A router as layers will declare it: a weight, a frozen table and a state of its own dtype.
struct Router : BareModule {
  explicit Router(bool has_state = true, ParameterKind kind_of_table = ParameterKind::frozen) {
    add("frozen", {.sharding = Sharding::replicated({7}),
                   .init = Init::normal(1),
                   .tags = {},
                   .kind = kind_of_table});
    add("weight", normal_spec({5, 4}, {.precise = true}));
    if (has_state)
      add("expert_bias", {.sharding = Sharding::replicated({5}),
                          .init = {Init::Kind::constant, 0.5},
                          .tags = {},
                          .kind = ParameterKind::state,
                          .dtype = at::kFloat});
  }
};

struct RouterRun {
  explicit RouterRun(std::uint64_t seed, bool has_state = true,
                     at::ScalarType dtype = at::kBFloat16,
                     ParameterKind kind_of_table = ParameterKind::frozen)
      : module(has_state, kind_of_table),
        store(declared_parameters(module), {.dtype = dtype, .grad_dtype = at::kFloat}),
        optimizer(make_optimizer({}, store)) {
    optimizer->main_parameters().initialize(seed);
  }
  void step() {
    store.zero_gradients();
    store.find("weight")->contribute(at::ones({5, 4}));
    store.finalize_gradients();
    optimizer->step({.lr = 0.1, .weight_decay = 0.1});
  }
  SaveRequest request(std::int64_t iteration = 1) {
    return {.model = &model,
            .weights = &store,
            .optimizer = optimizer.get(),
            .progress = {.iteration = iteration}};
  }
  at::Tensor value(const char* name) const { return store.find(name)->value(); }

  TransformerConfig model = tiny_llama();
  Router module;
  ParamStore store;
  std::unique_ptr<Optimizer> optimizer;
};

TEST(ParameterKinds, AreSavedAndLoaded) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const TemporaryFolder folder;
    RouterRun saved(1, true, dtype);
    const at::Tensor frozen = saved.value("frozen").clone(), weight = saved.value("weight").clone();
    saved.step();
    EXPECT_TRUE(at::equal(saved.value("frozen"), frozen)) << "no decay, no update";
    EXPECT_FALSE(at::equal(saved.value("weight"), weight));
    saved.value("expert_bias").copy_(at::arange(5) / 7.0);
    const auto written = save_checkpoint(folder.path(), saved.request());
    const Manifest manifest = read_manifest(written);
    EXPECT_EQ(manifest.tensors.at("expert_bias").kind, TensorKind::state);
    EXPECT_EQ(manifest.tensors.at("frozen").kind, TensorKind::weight);
    EXPECT_FALSE(manifest.tensors.contains("exp_avg.frozen"));
    EXPECT_FALSE(manifest.tensors.contains("main_param.frozen"));
    EXPECT_TRUE(manifest.tensors.contains("exp_avg.weight"));

    const auto differences = diff_checkpoints(written, written);
    EXPECT_EQ(differences.size(), 3u) << "a state is compared, too";

    RouterRun loaded(2, true, dtype);
    const auto source = find_checkpoint(folder.path());
    load_weights(*source, loaded.store, loaded.optimizer->main_parameters());
    load_optimizer(*source, *loaded.optimizer);
    for (const char* name : {"frozen", "weight", "expert_bias"})
      EXPECT_TRUE(at::equal(loaded.value(name), saved.value(name))) << name;
    saved.step();
    loaded.step();
    EXPECT_TRUE(at::equal(loaded.value("weight"), saved.value("weight")));
  }
}

TEST(ParameterKinds, StateStartsAtZeroForWhatWasFrozen) {
  const TemporaryFolder folder;
  RouterRun saved(1);
  saved.step();
  const auto written = save_checkpoint(folder.path(), saved.request());
  EXPECT_TRUE(read_manifest(written).tensors.at("frozen").is_frozen);
  EXPECT_FALSE(read_manifest(written).tensors.at("weight").is_frozen);
  RouterRun loaded(2, true, at::kBFloat16, ParameterKind::trained);
  const auto source = find_checkpoint(folder.path());
  load_weights(*source, loaded.store, loaded.optimizer->main_parameters());
  EXPECT_EQ(load_optimizer(*source, *loaded.optimizer), std::set<std::string>{"frozen"});
  EXPECT_TRUE(at::equal(loaded.value("frozen"), saved.value("frozen")));
  std::map<std::string, double> sums;
  loaded.optimizer->visit_state(
      [&](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
        sums[state + "." + piece.parameter->name()] = flat.abs().sum().item<double>();
      });
  EXPECT_EQ(sums.at("exp_avg.frozen"), 0);
  EXPECT_GT(sums.at("exp_avg.weight"), 0);
}

TEST(ParameterKinds, StateIsDroppedOfWhatIsFrozenNow) {
  const TemporaryFolder folder;
  RouterRun saved(1, true, at::kBFloat16, ParameterKind::trained);
  save_checkpoint(folder.path(), saved.request());
  RouterRun loaded(2);
  const auto source = find_checkpoint(folder.path());
  load_weights(*source, loaded.store, loaded.optimizer->main_parameters());
  EXPECT_EQ(load_optimizer(*source, *loaded.optimizer), std::set<std::string>{});
  EXPECT_TRUE(at::equal(loaded.value("frozen"), saved.value("frozen")));
}

constexpr const char* kFrozenFile = "frozen_00000.safetensors";

void expect_loads(const std::filesystem::path& root, std::int64_t iteration, RouterRun& saved) {
  RouterRun loaded(2);
  const auto source = find_checkpoint(root, iteration);
  ASSERT_TRUE(source);
  load_weights(*source, loaded.store, loaded.optimizer->main_parameters());
  load_optimizer(*source, *loaded.optimizer);
  for (const char* name : {"frozen", "weight", "expert_bias"})
    EXPECT_TRUE(at::equal(loaded.value(name), saved.value(name))) << name;
}

TEST(ParameterKinds, AFileOfFrozenWeightsIsWrittenOnce) {
  const TemporaryFolder folder;
  RouterRun run(1);
  const auto first = save_checkpoint(folder.path(), run.request(1));
  run.step();
  const auto second = save_checkpoint(folder.path(), run.request(2));
  EXPECT_EQ(std::filesystem::hard_link_count(second / kFrozenFile), 2u);
  EXPECT_EQ(std::filesystem::hard_link_count(second / "weights_00000.safetensors"), 1u);
  remove_folder_atomically(first);
  expect_loads(folder.path(), 2, run);

  run.value("frozen").add_(1);
  const auto third = save_checkpoint(folder.path(), run.request(3));
  EXPECT_EQ(std::filesystem::hard_link_count(third / kFrozenFile), 1u) << "other bytes";
  write_file(third / kFrozenFile, read_file(third / kFrozenFile) + "x");
  const auto fourth = save_checkpoint(folder.path(), run.request(4));
  EXPECT_EQ(std::filesystem::hard_link_count(fourth / kFrozenFile), 1u) << "of another size";
  write_file(fourth / kManifestFile, "{}");
  const auto fifth = save_checkpoint(folder.path(), run.request(5));
  EXPECT_EQ(std::filesystem::hard_link_count(fifth / kFrozenFile), 1u) << "a damaged manifest";
  expect_loads(folder.path(), 5, run);
}

TEST(ParameterKinds, ARunParsesNoManifestOfItsOwn) {
  const TemporaryFolder folder;
  RouterRun run(1);
  SavedFolder last;
  const auto save = [&](std::int64_t iteration) {
    SaveRequest request = run.request(iteration);
    request.last = &last;
    return save_checkpoint(folder.path(), request);
  };
  const auto first = save(1);
  EXPECT_EQ(last.path, first);
  EXPECT_TRUE(last.manifest.tensors.contains("frozen"));
  EXPECT_FALSE(last.manifest.tensors.contains("weight"));
  write_file(first / kManifestFile, "{}");
  const auto second = save(2);
  EXPECT_EQ(std::filesystem::hard_link_count(second / kFrozenFile), 2u);
  expect_loads(folder.path(), 2, run);

  save_checkpoint(folder.path(), run.request(3));  // of another run: `last` is not the latest now
  const auto fourth = save(4);
  EXPECT_EQ(std::filesystem::hard_link_count(fourth / kFrozenFile), 4u);
  run.value("frozen").add_(1);
  EXPECT_EQ(std::filesystem::hard_link_count(save(5) / kFrozenFile), 1u) << "other bytes";
}

TEST(ParameterKinds, ASaveThatIsGivenUpLeavesNothing) {
  const TemporaryFolder folder;
  RouterRun run(1);
  {
    const auto write = begin_checkpoint(folder.path(), run.request());
    write->give_up();
    write->write();
    expect_user_error([&] { write->commit("1"); }, {"the save was given up"});
  }
  EXPECT_FALSE(find_checkpoint(folder.path()));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), ".lock");
}

TEST(ParameterKinds, ASaveThatLinksLosesNothingInAFault) {
  for (const Fault fault : {Fault::kill, Fault::power_loss, Fault::io_error, Fault::dead_disk}) {
    RouterRun run(1);
    std::size_t num_calls = 1;
    bool has_linked = false;
    for (std::size_t at = 0; at < num_calls; ++at) {
      const TemporaryFolder folder;
      save_checkpoint(folder.path(), run.request(1));
      FaultInjectionFileSystem files({.fault = at == 0 ? Fault::none : fault, .at = at - 1});
      SaveRequest request = run.request(2);
      request.files = &files;
      try {
        save_checkpoint(folder.path(), request);
      } catch (const UserError&) {  // expected of some faults
      } catch (const Killed&) {     // expected: the save ends there
      }
      if (at == 0) num_calls = files.calls().size() + 1;
      for (const auto& call : files.calls()) has_linked |= call.name == "link";
      expect_loads(folder.path(), 1, run);
      save_checkpoint(folder.path(), run.request(3));
      expect_loads(folder.path(), 3, run);
    }
    EXPECT_TRUE(has_linked);
  }
}

TEST(ParameterKinds, AMissingStateKeepsItsInitialValue) {
  const TemporaryFolder folder;
  RouterRun saved(1, /*has_state=*/false);
  save_checkpoint(folder.path(), saved.request());
  Router module;
  ParamStore store(declared_parameters(module), {.dtype = at::kBFloat16, .with_gradients = false});
  load_weights(*find_checkpoint(folder.path()), store);
  EXPECT_TRUE((store.find("expert_bias")->value() == 0.5).all().item<bool>());
  EXPECT_TRUE(at::equal(store.find("frozen")->value(), saved.value("frozen")));
  RouterRun resumed(2);
  expect_user_error([&] { load_optimizer(*find_checkpoint(folder.path()), *resumed.optimizer); },
                    {"missing: 1\n    expert_bias"});
}

TEST(ParameterKinds, AStateThatTheModelDoesNotHaveIsIgnored) {
  const TemporaryFolder folder;
  RouterRun saved(1);
  save_checkpoint(folder.path(), saved.request());
  RouterRun loaded(2, /*has_state=*/false);
  load_weights(*find_checkpoint(folder.path()), loaded.store);
  EXPECT_TRUE(at::equal(loaded.value("weight"), saved.value("weight")));
}

}  // namespace
}  // namespace megatron
