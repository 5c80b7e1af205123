// Hugging Face directories with missing or surplus parts.
#include "megatron/checkpoint/hf_directory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/hf_writer.h"
#include "megatron/checkpoint/open_weights.h"
#include "megatron/checkpoint/verify.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// Writes the tiny model as a directory of many shards.
void write_shards(const fs::path& folder, const TinyRun& run, const fs::path& scratch) {
  save_checkpoint(scratch, run.request(5));
  const auto source = find_checkpoint(scratch);
  write_hf_directory(*open_weights(*source),
                     {.model = source->model, .model_type = "llama", .max_shard_bytes = 2000},
                     folder);
}

TEST(HfDirectory, MissingShardsAreNamedWithTheIndex) {
  const TemporaryFolder root;
  write_shards(root / "hf", TinyRun(1), root / "run");
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(root / "hf"))
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  ASSERT_GT(shards.size(), 3u);
  fs::remove(shards[0]);
  fs::remove(shards[1]);
  expect_user_error(
      [&] { HfDirectory directory(root / "hf"); },
      {"model.safetensors.index.json names " + std::to_string(shards.size()) + " files",
       "files, of which these are missing: 2\n", shards[0].filename().string(),
       shards[1].filename().string(), "download or copy them"});
}

TEST(HfDirectory, MissingAndUnusedTensorsAreCountedAndListed) {
  const TemporaryFolder root;
  write_shards(root / "hf", TinyRun(1), root / "run");
  Json config = read_json(root / "hf/config.json");
  config["num_hidden_layers"] = 4;
  write_file(root / "hf/config.json", config.dump());
  // config.json asks for two more layers of nine tensors each.
  expect_user_error([&] { HfReader reader(root / "hf"); },
                    {"tensors that config.json asks for are missing: 18\n    model.layers.2.",
                     "\n    and 8 more", "fix: check that config.json"});
  config["num_hidden_layers"] = 1;
  write_file(root / "hf/config.json", config.dump());
  expect_user_error([&] { HfReader reader(root / "hf"); },
                    {"does not use: 9\n    model.layers.1.", "fix: check model_type"});
}

TEST(HfDirectory, IsVerified) {
  const TemporaryFolder root;
  TinyRun run(1);
  write_shards(root / "whole", run, root / "run");
  std::ostringstream out;
  verify_checkpoints(root / "whole", /*all=*/false, out);
  EXPECT_EQ(out.str(),
            (root / "whole").string() + ": complete (a Hugging Face folder has no checksums)\n");
  run.store->find("output_layer.weight")->value()[3][2] = NAN;
  write_shards(root / "nan", run, root / "nan run");
  expect_user_error([&] { verify_checkpoints(root / "nan", /*all=*/false, out); },
                    {"tensors that are not finite",
                     "tensor 'output_layer.weight': 1 of 304 values are not finite"});
  EXPECT_NE(
      out.str().find("nan: complete (a Hugging Face folder has no checksums), but not finite"),
      std::string::npos)
      << out.str();
  expect_user_error(
      [&] { verify_checkpoints(root / "nan run", /*all=*/true, out); },
      {"iter_0000005: 1\n    tensor 'output_layer.weight': 1 of 304 values are not finite",
       "--ckpt-step"});
  EXPECT_NE(out.str().find("iter_0000005: whole, but not finite"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace megatron
