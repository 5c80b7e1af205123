// Checkpoints of runs in 16 bits: main weights and loss scale are restored, and any precision loads
// any other.
#include <ATen/ops/equal.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// A tiny Llama in the given type with random main weights and an Adam that has made some steps.
struct TypedRun {
  explicit TypedRun(at::ScalarType dtype, std::uint64_t seed = 1, const LossScaling& scaling = {},
                    const std::string& state_type = "fp32") {
    settings.model = tiny_llama();
    settings.optimizer->exp_avg_dtype = settings.optimizer->exp_avg_sq_dtype = state_type;
    model = make_gpt_model(*settings.model, Rank{});
    store = std::make_unique<ParamStore>(
        declared_parameters(*model), ParamStore::Options{.dtype = dtype, .grad_dtype = at::kFloat});
    optimizer = make_optimizer(*settings.optimizer, *store, scaling);
    main().initialize(seed);
    step();
  }
  MainParameters& main() { return optimizer->main_parameters(); }
  void step() {
    store->zero_gradients();
    for (Parameter* parameter : store->parameters()) {
      at::Tensor gradient = at::zeros(parameter->local_shape());
      const std::int64_t true_rows = parameter->sharding().global_shape[0];
      gradient.narrow(0, 0, true_rows).copy_(at::rand_like(gradient).narrow(0, 0, true_rows));
      parameter->contribute(gradient);
    }
    store->finalize_gradients();
    optimizer->step({.lr = 0.01, .weight_decay = 0.1});
  }
  std::filesystem::path save(const std::filesystem::path& root) const {
    return save_checkpoint(root, {.model = &*settings.model,
                                  .settings = &settings,
                                  .weights = store.get(),
                                  .optimizer = optimizer.get(),
                                  .progress = {.iteration = 1}});
  }
  void load(const std::filesystem::path& root) {
    const auto source = find_checkpoint(root);
    load_weights(*source, *store, main());
    load_optimizer(*source, *optimizer);
  }

  Settings settings;
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

std::vector<at::Tensor> states(TypedRun& run) {
  std::vector<at::Tensor> all;
  run.optimizer->visit_state([&](const ParameterPiece&, const std::string&, at::Tensor& tensor) {
    all.push_back(tensor.clone());
  });
  return all;
}

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << i;
}

void expect_rounded(TypedRun& run) {
  for (std::size_t i = 0; i < run.main().tensors().size(); ++i) {
    const at::Tensor value = run.main().pieces()[i].parameter->value().flatten();
    EXPECT_TRUE(at::equal(value, run.main().tensors()[i].to(value.scalar_type())));
  }
}

TEST(PrecisionCheckpoint, MainWeightsStatesAndScaleComeBackBitForBit) {
  const LossScaling dynamic{
      .initial = 4096, .is_dynamic = true, .min = 1, .window = 5, .hysteresis = 2};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const char* state : {"fp32", "bf16", "fp16"}) {
      const TemporaryFolder root;
      TypedRun saved(dtype, 1, dynamic, state),
          loaded(dtype, 2, {.initial = 2, .is_dynamic = true}, state);
      saved.save(root.path());
      loaded.load(root.path());
      expect_equal(saved.main().tensors(), loaded.main().tensors());
      expect_equal(states(saved), states(loaded));
      expect_rounded(loaded);
      EXPECT_EQ(loaded.optimizer->loss_scale_state(), (LossScaleState{4096, 1, 2}));
      EXPECT_EQ(loaded.optimizer->num_steps(), 1);
      EXPECT_EQ(find_checkpoint(root.path())->weight_type, dtype);
    }
  }
}

TEST(PrecisionCheckpoint, Float32TakesTheMainWeightsOfA16BitRun) {
  const TemporaryFolder root;
  TypedRun saved(at::kBFloat16), loaded(at::kFloat, 2);
  saved.save(root.path());
  loaded.load(root.path());
  expect_equal(saved.main().tensors(), loaded.main().tensors());
  EXPECT_FALSE(loaded.main().has_fp32_copies());
}

TEST(PrecisionCheckpoint, A16BitRunTakesFloat32WeightsAsMainWeights) {
  const TemporaryFolder root;
  TypedRun saved(at::kFloat), loaded(at::kHalf, 2, {.initial = 8, .is_dynamic = true});
  saved.save(root.path());
  loaded.load(root.path());
  expect_equal(saved.main().tensors(), loaded.main().tensors());
  expect_rounded(loaded);
  EXPECT_EQ(loaded.optimizer->loss_scale_state()->scale, 8);  // the checkpoint stores no scale
}

TEST(PrecisionCheckpoint, HuggingFaceWeightsBecomeMainWeights) {
  const TemporaryFolder root;
  TypedRun saved(at::kFloat), loaded(at::kBFloat16, 2);
  saved.save(root / "run");
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  load_weights(*find_checkpoint(root / "hf"), *loaded.store, loaded.main());
  expect_equal(saved.main().tensors(), loaded.main().tensors());
  expect_rounded(loaded);
}

TEST(PrecisionCheckpoint, CommandsUnderstandIt) {
  const TemporaryFolder root;
  TypedRun run(at::kBFloat16, 1,
               {.initial = 512, .is_dynamic = true, .min = 1, .window = 5, .hysteresis = 2});
  run.save(root / "run");
  const Json json = inspect_checkpoint(root / "run");
  EXPECT_EQ(json.at("optimizer").at("loss_scale"), 512);
  EXPECT_THAT(inspection_text(json),
              testing::AllOf(testing::HasSubstr("main_param.output_layer.weight"),
                             testing::HasSubstr("loss scale")));
  EXPECT_EQ(json.at("parameters"),
            2 * 19 * 16 + 2 * (16 * 32 + 16 * 16 + 3 * 24 * 16 + 2 * 16) + 16);
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  EXPECT_EQ(find_checkpoint(root / "hf")->weight_type, at::kBFloat16);
  for (const auto& difference : diff_checkpoints(root / "run", root / "hf"))
    EXPECT_EQ(difference.largest, 0) << difference.name;
}

}  // namespace
}  // namespace megatron
