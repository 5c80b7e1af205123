// Hugging Face directories of models with experts. The values are those of index arithmetic on the
// global tensors.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/hf_writer.h"
#include "megatron/checkpoint/mxfp4.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/transformer_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

constexpr std::int64_t kExperts = 4, kHidden = 8, kWidth = 6, kShared = 10, kDense = 12;

Json qwen2_moe() {
  return {{"model_type", "qwen2_moe"},
          {"vocab_size", 11},
          {"hidden_size", kHidden},
          {"intermediate_size", kDense},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 32},
          {"mlp_only_layers", {0}},
          {"num_experts", kExperts},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", kWidth},
          {"shared_expert_intermediate_size", kShared},
          {"tie_word_embeddings", true}};
}

Json mixtral() {
  return {{"model_type", "mixtral"},       {"vocab_size", 11},
          {"hidden_size", kHidden},        {"intermediate_size", kWidth},
          {"num_hidden_layers", 2},        {"num_attention_heads", 2},
          {"num_key_value_heads", 1},      {"max_position_embeddings", 32},
          {"num_local_experts", kExperts}, {"tie_word_embeddings", true}};
}

void add_attention(std::vector<WeightInfo>& weights, const std::string& layer, bool qkv_bias) {
  weights.push_back({layer + "self_attention.linear_qkv.layer_norm_weight", {kHidden}});
  weights.push_back({layer + "self_attention.linear_qkv.weight", {2 * kHidden, kHidden}});
  if (qkv_bias) weights.push_back({layer + "self_attention.linear_qkv.bias", {2 * kHidden}});
  weights.push_back({layer + "self_attention.linear_proj.weight", {kHidden, kHidden}});
}

void add_experts(std::vector<WeightInfo>& weights, const std::string& layer) {
  weights.push_back({layer + "pre_mlp_layernorm.weight", {kHidden}});
  weights.push_back({layer + "mlp.router.weight", {kExperts, kHidden}});
  weights.push_back({layer + "mlp.experts.linear_fc1.weight", {kExperts, 2 * kWidth, kHidden}});
  weights.push_back({layer + "mlp.experts.linear_fc2.weight", {kExperts, kHidden, kWidth}});
}

/// Returns the parameters of the model, as its layers declare them.
std::vector<WeightInfo> declared(const Json& config) {
  const bool is_qwen = config.at("model_type") == "qwen2_moe";
  std::vector<WeightInfo> weights{{"embedding.word_embeddings.weight", {11, kHidden}},
                                  {"decoder.final_layernorm.weight", {kHidden}}};
  const std::string first = "decoder.layers.0.", second = "decoder.layers.1.";
  for (const std::string& layer : {first, second}) add_attention(weights, layer, is_qwen);
  add_experts(weights, second);
  if (!is_qwen) {
    add_experts(weights, first);
    return weights;
  }
  weights.push_back({first + "mlp.linear_fc1.layer_norm_weight", {kHidden}});
  weights.push_back({first + "mlp.linear_fc1.weight", {2 * kDense, kHidden}});
  weights.push_back({first + "mlp.linear_fc2.weight", {kHidden, kDense}});
  weights.push_back({second + "mlp.shared_experts.linear_fc1.weight", {2 * kShared, kHidden}});
  weights.push_back({second + "mlp.shared_experts.linear_fc2.weight", {kHidden, kShared}});
  weights.push_back({second + "mlp.shared_experts.gate_weight", {1, kHidden}});
  return weights;
}

/// Holds weights in memory. Every element of a tensor is different.
class NumberedWeights : public WeightReader {
 public:
  explicit NumberedWeights(std::vector<WeightInfo> weights) : weights_(std::move(weights)) {
    std::ranges::sort(weights_, {}, &WeightInfo::name);
  }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  at::Tensor global(const std::string& name) const {
    const WeightInfo& info = *find(name);
    const auto salt = static_cast<double>(&info - weights_.data());
    return at::arange(num_elements(info.shape), at::kFloat).view(info.shape).add_(1000 * salt);
  }
  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override {
    destination.copy_(narrow_to(global(name), slice.global_offset, slice.shape));
  }

 private:
  std::vector<WeightInfo> weights_;
};

using Tensors = std::map<std::string, at::Tensor>;

Tensors read_tensors(const fs::path& path) {
  const SafetensorsFile file(path);
  Tensors tensors;
  for (const StoredTensor& tensor : file.tensors())
    tensors[tensor.name] = view_tensor(file, tensor).clone();
  return tensors;
}

void write_tensors(const fs::path& path, const Tensors& tensors) {
  std::vector<TensorHeader> headers;
  for (const auto& [name, tensor] : tensors)
    headers.push_back({name,
                       tensor.scalar_type() == at::kByte
                           ? SafetensorsDtype::U8
                           : to_safetensors_dtype(tensor.scalar_type()),
                       tensor.sizes().vec()});
  SafetensorsWriter writer(path, headers);
  for (const TensorHeader& header : writer.order())
    writer.write(tensor_bytes(contiguous_cpu(tensors.at(header.name))));
  writer.close();
}

void write_model(const Json& config, const fs::path& folder,
                 std::uint64_t max_shard_bytes = 1'000'000) {
  NumberedWeights weights(declared(config));
  write_hf_directory(weights,
                     {.model = parse_hf_config(config, "c").model,
                      .model_type = config.at("model_type"),
                      .max_shard_bytes = max_shard_bytes},
                     folder);
}

void expect_numbered(HfReader& reader, const Json& config) {
  const NumberedWeights expected(declared(config));
  for (const WeightInfo& info : expected.weights())
    EXPECT_TRUE(reader.read(info.name).equal(expected.global(info.name))) << info.name;
}

TEST(HfExperts, AreWrittenAsPublishedCheckpointsHaveThem) {
  const TemporaryFolder root;
  write_model(mixtral(), root / "mixtral");
  write_model(qwen2_moe(), root / "qwen");
  const NumberedWeights ours(declared(mixtral()));
  const Tensors theirs = read_tensors(root / "mixtral/model.safetensors");
  // Two layers with attention (4 tensors), norms (2), a router and 3 tensors for each expert.
  EXPECT_EQ(theirs.size(), 2u * (4 + 2 + 1 + 3 * kExperts) + 2);
  const at::Tensor fc1 = ours.global("decoder.layers.1.mlp.experts.linear_fc1.weight"),
                   fc2 = ours.global("decoder.layers.1.mlp.experts.linear_fc2.weight");
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    const std::string prefix =
        "model.layers.1.block_sparse_moe.experts." + std::to_string(expert) + ".";
    EXPECT_TRUE(theirs.at(prefix + "w1.weight").equal(fc1[expert].narrow(0, 0, kWidth)));
    EXPECT_TRUE(theirs.at(prefix + "w3.weight").equal(fc1[expert].narrow(0, kWidth, kWidth)));
    EXPECT_TRUE(theirs.at(prefix + "w2.weight").equal(fc2[expert]));
  }
  const Tensors qwen = read_tensors(root / "qwen/model.safetensors");
  EXPECT_TRUE(qwen.contains("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_FALSE(qwen.contains("model.layers.0.mlp.gate.weight"));
  EXPECT_EQ(qwen.at("model.layers.1.mlp.shared_expert_gate.weight").sizes().vec(),
            (Shape{1, kHidden}));
  EXPECT_TRUE(qwen.contains("model.layers.1.mlp.experts.3.down_proj.weight"));
}

TEST(HfExperts, AreReadFromOneTensorEachOrFromStackedOnes) {
  for (const Json& config : {mixtral(), qwen2_moe()}) {
    const TemporaryFolder root;
    write_model(config, root / "published");
    HfReader published(root / "published");
    expect_numbered(published, config);

    const NumberedWeights ours(declared(config));
    Tensors tensors = read_tensors(root / "published/model.safetensors");
    std::erase_if(tensors, [](const auto& item) {
      return item.first.find(".experts.") != std::string::npos ||
             item.first.find("block_sparse_moe") != std::string::npos;
    });
    for (const WeightInfo& info : ours.weights()) {
      if (info.name.find(".mlp.experts.") == std::string::npos &&
          info.name.find(".mlp.router.") == std::string::npos)
        continue;
      const std::string layer = info.name.substr(std::string("decoder.layers.").size(), 1);
      const bool is_router = info.name.ends_with("router.weight");
      const std::string last = is_router                           ? "gate.weight"
                               : info.name.ends_with("fc1.weight") ? "experts.gate_up_proj"
                                                                   : "experts.down_proj";
      tensors["model.layers." + layer + ".mlp." + last] = ours.global(info.name);
    }
    fs::create_directory(root / "stacked");
    fs::copy(root / "published/config.json", root / "stacked/config.json");
    write_tensors(root / "stacked/model.safetensors", tensors);
    HfReader stacked(root / "stacked");
    expect_numbered(stacked, config);
  }
}

// Two ranks of expert parallelism times two of expert tensor parallelism.
TEST(HfExperts, EachRankReadsItsPart) {
  const TemporaryFolder root;
  write_model(mixtral(), root / "hf", 700);  // many files
  EXPECT_TRUE(fs::exists(root / "hf/model.safetensors.index.json"));
  HfReader reader(root / "hf");
  const NumberedWeights ours(declared(mixtral()));
  const std::string fc1_name = "decoder.layers.0.mlp.experts.linear_fc1.weight",
                    fc2_name = "decoder.layers.0.mlp.experts.linear_fc2.weight";
  const AxisSplit by_expert{.dim = 0};
  const Sharding fc1{
      .global_shape = {kExperts, 2 * kWidth, kHidden},
      .splits = {by_expert, {.dim = 1, .blocks = {{.size = kWidth}, {.size = kWidth}}}}};
  const Sharding fc2{.global_shape = {kExperts, kHidden, kWidth},
                     .splits = {by_expert, {.dim = 2}}};
  for (std::int64_t ep = 0; ep < 2; ++ep) {
    for (std::int64_t etp = 0; etp < 2; ++etp) {
      const std::vector<Axis> axes{{"ep", ep, 2}, {"etp", etp, 2}};
      const auto load = [&](const std::string& name, const Sharding& sharding) {
        at::Tensor local = at::full(sharding.local_shape(axes), -1.0f);
        Parameter parameter(name, {.sharding = sharding, .init = Init::zeros(), .tags = {}}, axes);
        fill_piece(reader, whole_piece(parameter), name, local.view({-1}));
        return local;
      };
      const at::Tensor experts1 = ours.global(fc1_name).narrow(0, 2 * ep, 2),
                       experts2 = ours.global(fc2_name).narrow(0, 2 * ep, 2);
      EXPECT_TRUE(
          load(fc1_name, fc1)
              .equal(at::cat(
                  {experts1.narrow(1, 3 * etp, 3), experts1.narrow(1, kWidth + 3 * etp, 3)}, 1)));
      EXPECT_TRUE(load(fc2_name, fc2).equal(experts2.narrow(2, 3 * etp, 3)));
    }
  }
  // A slice across the queries and the key of a group, within the columns.
  const std::string qkv = "decoder.layers.0.self_attention.linear_qkv.weight";
  at::Tensor rows = at::empty({5, 3});
  reader.copy_slice(qkv, slice_at({6, 2}, {5, 3}), rows);
  EXPECT_TRUE(rows.equal(ours.global(qkv).narrow(0, 6, 5).narrow(1, 2, 3)));
  // A slice across gate and up, within the columns.
  at::Tensor part = at::empty({1, 4, 3});
  reader.copy_slice(fc1_name, slice_at({2, kWidth - 1, 2}, {1, 4, 3}), part);
  EXPECT_TRUE(
      part.equal(ours.global(fc1_name).narrow(0, 2, 1).narrow(1, kWidth - 1, 4).narrow(2, 2, 3)));
}

TEST(HfExperts, TheFirstFamilyThatFitsIsWritten) {
  for (const Json& config : {mixtral(), qwen2_moe()}) {
    const TemporaryFolder root;
    NumberedWeights weights(declared(config));
    write_hf_directory(weights, {.model = parse_hf_config(config, "c").model}, root / "hf");
    EXPECT_EQ(read_json(root / "hf/config.json").at("model_type"), config.at("model_type"));
  }
  // Mixtral has no shared experts, and qwen3_moe has norms of queries and keys.
  NumberedWeights weights(declared(qwen2_moe()));
  const TransformerConfig model = parse_hf_config(qwen2_moe(), "c").model;
  const TemporaryFolder root;
  for (const char* family : {"mixtral", "qwen3_moe", "qwen2"}) {
    expect_user_error(
        [&] { write_hf_directory(weights, {.model = model, .model_type = family}, root / family); },
        {family, "mlp.shared_experts.gate_weight"});
  }
}

TEST(HfExperts, MissingAndExtraTensorsAreNamed) {
  const TemporaryFolder root;
  write_model(qwen2_moe(), root / "hf");
  const fs::path file = root / "hf/model.safetensors";
  const Tensors whole = read_tensors(file);
  const std::string expert = "model.layers.1.mlp.experts.2.up_proj.weight";
  const auto expect_named = [&](const Tensors& tensors, const std::vector<std::string>& words) {
    fs::remove(file);
    write_tensors(file, tensors);
    expect_user_error([&] { HfReader reader(root / "hf"); }, words);
  };
  Tensors broken = whole;
  broken.erase(expert);
  expect_named(broken, {"are missing: 1\n    " + expert});
  broken = whole;
  broken["model.layers.1.mlp.experts.4.up_proj.weight"] = whole.at(expert);
  expect_named(broken, {"does not use: 1\n    model.layers.1.mlp.experts.4.up_proj.weight"});
  broken = whole;
  broken["model.layers.0.mlp.experts.0.up_proj.weight"] = whole.at(expert);
  expect_named(broken, {"does not use: 1\n    model.layers.0.mlp.experts.0.up_proj.weight"});
  broken = whole;
  broken[expert] = whole.at(expert).narrow(0, 0, kWidth - 1).clone();
  expect_named(broken, {"tensor '" + expert + "'", "[5, 8], expected [6, 8]"});
  broken = whole;
  broken["model.layers.1.mlp.experts.down_proj"] = at::zeros({kExperts, kHidden, kWidth});
  expect_named(broken, {"does not use: 4\n    model.layers.1.mlp.experts.0.down_proj.weight"});
  broken = whole;
  broken["model.layers.1.mlp.experts.gate_up_proj"] = at::zeros({kExperts, kHidden, kWidth});
  expect_named(broken, {"experts.gate_up_proj'", "[4, 8, 6], expected [4, 12, 8]"});
}

// A published checkpoint may keep single tensors in a wider type.
TEST(HfExperts, TypesThatDifferBecomeFloat32) {
  const TemporaryFolder root;
  write_model(mixtral(), root / "hf");
  const fs::path file = root / "hf/model.safetensors";
  Tensors tensors = read_tensors(file);
  for (auto& [name, tensor] : tensors) {
    if (name != "model.layers.1.block_sparse_moe.experts.1.w2.weight")
      tensor = tensor.to(at::kBFloat16);
  }
  fs::remove(file);
  write_tensors(file, tensors);
  HfReader reader(root / "hf");
  const std::string fc2 = "decoder.layers.1.mlp.experts.linear_fc2.weight";
  EXPECT_EQ(reader.find(fc2)->type, at::kFloat);
  EXPECT_EQ(reader.find("decoder.layers.1.mlp.experts.linear_fc1.weight")->type, at::kBFloat16);
  EXPECT_TRUE(reader.read(fc2)[1].equal(NumberedWeights(declared(mixtral())).global(fc2)[1]));
}

constexpr std::int64_t kWide = 64, kRows = 32;  // hidden and expert width
const std::string kFc1 = "decoder.layers.0.mlp.experts.linear_fc1.weight",
                  kFc2 = "decoder.layers.0.mlp.experts.linear_fc2.weight",
                  kStacked = "model.layers.0.mlp.experts.";

Json gpt_oss() {
  return {{"model_type", "gpt_oss"},
          {"vocab_size", 11},
          {"hidden_size", kWide},
          {"intermediate_size", kRows},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 32},
          {"num_local_experts", 2},
          {"num_experts_per_tok", 1},
          {"head_dim", 4},
          {"tie_word_embeddings", true}};
}

NumberedWeights write_gpt_oss(const fs::path& folder) {
  const TransformerConfig model = parse_hf_config(gpt_oss(), "c").model;
  std::vector<WeightInfo> declared;
  for (const auto& [name, sharding] : declared_shardings(find_model_family("gpt"), model))
    declared.push_back({name, sharding.global_shape});
  NumberedWeights weights(declared);
  write_hf_directory(weights, {.model = model, .model_type = "gpt_oss"}, folder);
  return weights;
}

TEST(HfExperts, OfGptOssAlternateBetweenGateAndUp) {
  const TemporaryFolder root;
  const NumberedWeights ours = write_gpt_oss(root / "hf");
  const Tensors theirs = read_tensors(root / "hf/model.safetensors");
  const at::Tensor fc1 = ours.global(kFc1), columns = theirs.at(kStacked + "gate_up_proj")[1];
  EXPECT_TRUE(columns.select(1, 2 * 3).equal(fc1[1][3]));
  EXPECT_TRUE(columns.select(1, 2 * 3 + 1).equal(fc1[1][kRows + 3]));
  EXPECT_TRUE(theirs.at(kStacked + "down_proj")[1].t().equal(ours.global(kFc2)[1]));
  EXPECT_TRUE(theirs.contains("model.layers.0.self_attn.sinks"));
  HfReader reader(root / "hf");
  for (const WeightInfo& info : ours.weights())
    EXPECT_TRUE(reader.read(info.name).equal(ours.global(info.name))) << info.name;
  at::Tensor part = at::empty({1, 4, 3});  // gates and ups
  reader.copy_slice(kFc1, slice_at({1, kRows - 1, 2}, {1, 4, 3}), part);
  EXPECT_TRUE(part.equal(fc1.narrow(0, 1, 1).narrow(1, kRows - 1, 4).narrow(2, 2, 3)));
}

TEST(HfExperts, AreUnpackedFromMxfp4) {
  const TemporaryFolder root;
  write_gpt_oss(root / "hf");
  const fs::path file = root / "hf/model.safetensors";
  Tensors tensors = read_tensors(file);
  const auto pack = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    const at::Tensor bytes = at::arange(rows * columns).mul(37).remainder(251).to(at::kByte),
                     scales = at::arange(2 * rows * columns / 32).remainder(7).add(120);
    tensors.erase(name);
    const at::Tensor &blocks = tensors[name + "_blocks"] = bytes.view({2, rows, -1, 16}),
                     &exponents = tensors[name + "_scales"] =
                         scales.to(at::kByte).view({2, rows, -1});
    return dequantized_mxfp4(blocks.flatten(2), exponents);
  };
  const at::Tensor down = pack(kStacked + "down_proj", kWide, kRows),
                   up = pack(kStacked + "gate_up_proj", 2 * kRows, kWide),
                   fc1 = up.unflatten(1, {kRows, 2}).transpose(1, 2).flatten(1, 2);
  fs::remove(file);
  write_tensors(file, tensors);
  HfReader reader(root / "hf");
  EXPECT_EQ(reader.find(kFc1)->type, at::kBFloat16);
  EXPECT_TRUE(reader.read(kFc1).equal(fc1));
  EXPECT_TRUE(reader.read(kFc2).equal(down));
  at::Tensor part = at::empty({1, 4, 40});
  reader.copy_slice(kFc1, slice_at({1, kRows - 1, 5}, {1, 4, 40}), part);
  EXPECT_TRUE(
      part.equal(fc1.to(at::kFloat).narrow(0, 1, 1).narrow(1, kRows - 1, 4).narrow(2, 5, 40)));
  for (const char* half : {"_scales", "_blocks"}) {
    Tensors broken = tensors;
    broken.erase(kStacked + "down_proj" + half);
    fs::remove(file);
    write_tensors(file, broken);
    expect_user_error([&] { HfReader reader(root / "hf"); },
                      {"are missing: 1\n    " + kStacked + "down_proj" + half});
  }
}

TEST(HfExperts, OtherNumbersOfExpertsAreRefused) {
  const TemporaryFolder root;
  write_model(mixtral(), root / "hf");
  Json config = read_json(root / "hf/config.json");
  config["num_local_experts"] = kExperts - 1;
  write_file(root / "hf/config.json", config.dump());
  // The router has a row too many; then three tensors of each layer have no expert.
  expect_user_error([&] { HfReader reader(root / "hf"); },
                    {"gate.weight", "[4, 8], expected [3, 8]"});
}

}  // namespace
}  // namespace megatron
