#include "megatron/checkpoint/convert.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/temporary_folder.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/diff.h"
#include "megatron/checkpoint/inspect.h"

namespace megatron {
namespace {

TEST(Convert, GoesToHuggingFaceAndBack) {
  const TemporaryFolder root;
  const TinyRun run(1);
  save_checkpoint(root / "run", run.request(5));
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  EXPECT_EQ(read_json(root / "hf/config.json").at("model_type"), "llama");
  convert_checkpoint({.load = root / "hf", .save = root / "back", .format = "megatron"});
  EXPECT_TRUE(find_checkpoint(root / "back")->is_release);
  EXPECT_EQ(find_checkpoint(root / "back")->model_type, "llama");
  for (const auto& difference : diff_checkpoints(root / "run", root / "back")) EXPECT_EQ(difference.largest, 0) << difference.name;
  TinyRun loaded(2);
  load_weights(*find_checkpoint(root / "hf"), *loaded.store);
  EXPECT_TRUE(loaded.tensors()[0].equal(run.tensors()[0]));
  expect_user_error([&] { convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"}); }, {"not empty"});
}

TEST(Convert, ChangesTheType) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf", .dtype = at::kBFloat16});
  EXPECT_EQ(find_checkpoint(root / "hf")->weight_type, at::kBFloat16);
  EXPECT_EQ(read_json(root / "hf/config.json").at("dtype"), "bfloat16");
}

TEST(Convert, NamesWhatNoFamilyCanHold) {
  const TemporaryFolder root;
  TransformerConfig config = tiny_llama();
  config.apply_layernorm_1p = true;
  save_checkpoint(root / "run", TinyRun(1, config).request(5));
  expect_user_error([&] { convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"}); },
                    {"no Hugging Face family", "apply_layernorm_1p"});
  EXPECT_FALSE(fs::exists(root / "hf"));
}

TEST(Inspect, TellsWhatIsThere) {
  const TemporaryFolder root;
  save_checkpoint(root.path(), TinyRun(1).request(5));
  const Json json = inspect_checkpoint(root.path());
  EXPECT_EQ(json.at("iteration"), 5);
  // 2·19·16 embeddings, per layer 16·(16+16) qkv, 16·16 proj, 3·24·16 MLP and 2·16 norms, and the last norm.
  EXPECT_EQ(json.at("parameters"), 2 * 19 * 16 + 2 * (16 * 32 + 16 * 16 + 3 * 24 * 16 + 2 * 16) + 16);
  EXPECT_THAT(inspection_text(json), testing::HasSubstr("exp_avg.output_layer.weight"));
}

}  // namespace
}  // namespace megatron
