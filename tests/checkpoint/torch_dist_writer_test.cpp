#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/megatron_lm/torch_dist.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/formats/dcp_metadata.h"
#include "megatron/formats/torch_file.h"
#include "megatron/models/architecture.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// Expects that `right` has every tensor of `left` with the same bits.
void expect_same_tensors(const CheckpointSource& left, const CheckpointSource& right) {
  ManifestReader from(left.folder, left.manifest), to(right.folder, right.manifest);
  for (const auto& [name, tensor] : left.manifest->tensors) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(right.manifest->tensors.contains(name));
    const ManifestTensor& other = right.manifest->tensors.at(name);
    EXPECT_EQ(other.kind, tensor.kind);
    EXPECT_EQ(other.type, tensor.type);
    ASSERT_EQ(other.shape, tensor.shape);
    at::Tensor a = at::empty(tensor.shape), b = at::empty(tensor.shape);
    from.copy_slice(name, whole_slice(tensor.shape), a);
    to.copy_slice(name, whole_slice(tensor.shape), b);
    EXPECT_TRUE(a.equal(b));
  }
}

/// Returns a model whose layers, but for the first `num_dense`, have experts.
TransformerConfig with_experts(std::int64_t num_dense = 0) {
  TransformerConfig config = tiny_llama();
  config.moe.num_experts = 4;
  config.moe.ffn_hidden_size = 16;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(config.num_layers), 1);
  std::fill_n(layers.begin(), num_dense, 0);
  set_experts(config, layers);
  return config;
}

TEST(TorchDistWriter, KeepsAllTensorsAndTheProgress) {
  for (const TransformerConfig& config : {tiny_llama(), with_experts()}) {
    const TemporaryFolder root;
    const TinyRun run(1, config);
    save_checkpoint(root / "run", run.request(5));
    const ConvertResult written =
        convert_checkpoint({.load = root / "run", .save = root / "theirs", .format = "torch_dist"});
    EXPECT_EQ(written.folder, root / "theirs/iter_0000005");
    EXPECT_EQ(read_file(root / "theirs/latest_checkpointed_iteration.txt"), "5");
    const CheckpointSource ours = *find_checkpoint(root / "run"),
                           theirs = *find_checkpoint(root / "theirs");
    expect_same_tensors(ours, theirs);
    EXPECT_EQ(theirs.manifest->progress, ours.manifest->progress);
    EXPECT_TRUE(forward_differences(theirs.model, ours.model).empty());
    ASSERT_TRUE(theirs.manifest->optimizer);
    EXPECT_EQ(theirs.manifest->optimizer->name, "adam");
  }
}

TEST(TorchDistWriter, StacksLayersThatAreAlike) {
  const TemporaryFolder root;
  const auto names = [&](const std::string& name, const TransformerConfig& config) {
    save_checkpoint(root / name, TinyRun(1, config).request(5));
    convert_checkpoint(
        {.load = root / name, .save = root / (name + " theirs"), .format = "torch_dist"});
    return read_dcp_metadata(root / (name + " theirs/iter_0000005"));
  };
  const std::string router = "mlp.router.weight";
  const DcpMetadata alike = names("alike", with_experts());
  EXPECT_TRUE(alike.tensors.contains("decoder.layers." + router));
  EXPECT_TRUE(alike.tensors.contains("optimizer.state.exp_avg.decoder.layers." + router));
  EXPECT_TRUE(alike.tensors.contains("decoder.layers.mlp.experts.experts.linear_fc1.weight"));
  EXPECT_EQ(alike.tensors.at("decoder.layers." + router).shape.front(), tiny_llama().num_layers);
  const DcpMetadata mixed = names("mixed", with_experts(/*num_dense=*/1));
  EXPECT_FALSE(mixed.tensors.contains("decoder.layers." + router));
  EXPECT_FALSE(mixed.tensors.contains("decoder.layers.0." + router));
  EXPECT_TRUE(mixed.tensors.contains("decoder.layers.1." + router));
}

TEST(TorchDistWriter, NamesArgsAsMegatronDoes) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1, with_experts()).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "theirs", .format = "torch_dist"});
  const std::string bytes = read_file(root / "theirs/iter_0000005/common.pt");
  const TorchFile common(std::as_bytes(std::span(bytes)), "common.pt");
  const PickleValue args = common.root().at("args", "it");
  EXPECT_TRUE(args.is_object_of("argparse.Namespace"));
  for (const char* name :
       {"rope_original_max_position_embeddings", "yarn_original_max_position_embeddings",
        "original_max_position_embeddings"})
    EXPECT_EQ(args.at(name, "args").integer(name), 8192);
  for (const char* name : {"vocab_size", "padded_vocab_size"})
    EXPECT_EQ(args.at(name, "args").integer(name), tiny_llama().vocab_size);
  EXPECT_EQ(args.at("moe_layer_freq", "args").integer("it"), 1);
  EXPECT_EQ(args.at("params_dtype", "args").global_name(), "torch.float32");
  EXPECT_EQ(common.root().at("iteration", "it").integer("it"), 5);
}

TEST(TorchDistWriter, WritesReleasesAndPlainFolders) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  convert_checkpoint({.load = root / "hf", .save = root / "release", .format = "torch_dist"});
  EXPECT_EQ(read_file(root / "release/latest_checkpointed_iteration.txt"), "release");
  for (const auto& difference : diff_checkpoints(root / "run", root / "release"))
    EXPECT_EQ(difference.largest, 0) << difference.name;
  convert_checkpoint({.load = root / "run", .save = root / "dcp", .format = "dcp"});
  const DcpMetadata plain = read_dcp_metadata(root / "dcp");
  const auto manifest = find_checkpoint(root / "run")->manifest;
  EXPECT_EQ(plain.tensors.size(), manifest->tensors.size());
  for (const auto& [name, tensor] : manifest->tensors)
    EXPECT_EQ(plain.tensors.at(name).shape, tensor.shape) << name;
}

/// Megatron-LM would load the weights and compute something else.
TEST(TorchDistWriter, RefusesRecurrentLayersThatMegatronLacks) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  CheckpointSource source = *find_checkpoint(root / "run");
  ManifestReader reader(source.folder, source.manifest);
  source.family = "hybrid";
  source.model.hybrid_layer_pattern = "M*";
  const auto expect_refusal = [&](const MambaConfig& mamba) {
    source.model.mamba = mamba;
    expect_user_error([&] { write_torch_dist(reader, source, root / "theirs"); },
                      {"Mamba-2", "--mamba-norm-groups"});
  };
  expect_refusal({.head_dim = 8, .num_groups = 2, .norm_groups = 1});
  expect_refusal({.head_dim = 8, .num_groups = 2, .norm_epsilon = 1e-6});
  expect_refusal({.head_dim = 8, .num_groups = 2, .conv_kernel_dim = 3});
  EXPECT_FALSE(fs::exists(root / "theirs"));
}

TEST(TorchDistWriter, WritesNothingThatIsNotComplete) {
  const TemporaryFolder root;
  const TinyRun run(1);
  save_checkpoint(root / "run", run.request(5));
  const fs::path file = root / "run/iter_0000005/weights_00000.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() - 5] ^= 1;
  write_file(file, bytes);
  for (const char* format : {"torch_dist", "dcp"}) {
    expect_user_error(
        [&] {
          convert_checkpoint({.load = root / "run", .save = root / format, .format = format});
        },
        {"checksum does not match"});
    EXPECT_FALSE(fs::exists(root / format)) << format;
  }
  fs::create_directories(root / "full/of");
  expect_user_error(
      [&] {
        convert_checkpoint({.load = root / "run", .save = root / "full", .format = "torch_dist"});
      },
      {"not empty"});
}

}  // namespace
}  // namespace megatron
