// Checkpoints of parameters that are not trained: frozen weights have no optimizer state, and the
// state of a layer is saved beside the weights.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "support/bare_module.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::HasSubstr;

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
  SaveRequest request() {
    return {.model = &model,
            .weights = &store,
            .optimizer = optimizer.get(),
            .progress = {.iteration = 1}};
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
