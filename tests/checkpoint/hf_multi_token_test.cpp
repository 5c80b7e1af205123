// Hugging Face directories of models with multi-token prediction.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/hf_writer.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// A DeepSeek-V3 of two layers, the second with experts, and one depth of multi-token prediction.
Json deepseek() {
  return {{"model_type", "deepseek_v3"},
          {"vocab_size", 11},
          {"hidden_size", 8},
          {"intermediate_size", 12},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 32},
          {"q_lora_rank", 6},
          {"kv_lora_rank", 4},
          {"qk_nope_head_dim", 4},
          {"qk_rope_head_dim", 2},
          {"v_head_dim", 4},
          {"n_routed_experts", 4},
          {"num_experts_per_tok", 2},
          {"n_group", 1},
          {"topk_group", 1},
          {"moe_intermediate_size", 6},
          {"first_k_dense_replace", 1},
          {"num_nextn_predict_layers", 1}};
}

/// The weights that the model declares. Every element differs.
class DeclaredWeights : public WeightReader {
 public:
  explicit DeclaredWeights(const TransformerConfig& model) {
    const ModelFamily& gpt = find_model_family("gpt");
    for (const auto& [name, sharding] : declared_shardings(gpt, model))
      weights_.push_back({name, sharding.global_shape});
    for (const auto& [name, sharding] : declared_shardings(gpt, model, /*of_states=*/true))
      states_.push_back({name, sharding.global_shape});
  }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  const std::vector<WeightInfo>& states() const override { return states_; }
  at::Tensor global(const std::string& name) const {
    const WeightInfo& info = *find(name);
    const auto salt = static_cast<double>(std::hash<std::string>{}(name) % 1000);
    return at::arange(num_elements(info.shape), at::kFloat).view(info.shape).add_(1000 * salt);
  }
  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override {
    destination.copy_(narrow_to(global(name), slice.global_offset, slice.shape));
  }

 private:
  std::vector<WeightInfo> weights_, states_;
};

using Tensors = std::map<std::string, at::Tensor>;

Tensors read_tensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  Tensors tensors;
  for (const StoredTensor& tensor : file.tensors())
    tensors[tensor.name] = view_tensor(file, tensor).clone();
  return tensors;
}

void replace_tensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::filesystem::remove(path);
  std::vector<TensorHeader> headers;
  for (const auto& [name, tensor] : tensors)
    headers.push_back({name, to_safetensors_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  SafetensorsWriter writer(path, headers);
  for (const TensorHeader& header : writer.order())
    writer.write(tensor_bytes(contiguous_cpu(tensors.at(header.name))));
  writer.close();
}

class HfMultiToken : public testing::Test {
 protected:
  HfMultiToken() {
    write_hf_directory(weights_, {.model = model_, .model_type = "deepseek_v3"}, folder_);
  }
  const TemporaryFolder root_;
  const std::filesystem::path folder_ = root_ / "hf", file_ = folder_ / "model.safetensors";
  const TransformerConfig model_ = parse_hf_config(deepseek(), "c").model;
  DeclaredWeights weights_{model_};
};

TEST_F(HfMultiToken, IsWrittenBehindTheLayersWithCopiesOfSharedWeights) {
  const Tensors theirs = read_tensors(file_);
  const std::string depth = "model.layers.2.";
  EXPECT_TRUE(
      theirs.at(depth + "eh_proj.weight").equal(weights_.global("mtp.layers.0.eh_proj.weight")));
  EXPECT_TRUE(theirs.at(depth + "shared_head.norm.weight")
                  .equal(weights_.global("mtp.layers.0.final_layernorm.weight")));
  EXPECT_TRUE(theirs.at(depth + "embed_tokens.weight")
                  .equal(weights_.global("embedding.word_embeddings.weight")));
  EXPECT_TRUE(
      theirs.at(depth + "shared_head.head.weight").equal(weights_.global("output_layer.weight")));
  EXPECT_TRUE(theirs.contains(depth + "mlp.experts.3.down_proj.weight"));
  EXPECT_EQ(read_json(folder_ / "config.json").at("num_nextn_predict_layers"), 1);
}

TEST_F(HfMultiToken, IsReadBack) {
  HfReader reader(folder_);
  EXPECT_EQ(reader.config().model.mtp_num_layers, 1);
  EXPECT_EQ(reader.weights().size(), weights_.weights().size());
  for (const auto* all : {&weights_.weights(), &weights_.states()})
    for (const WeightInfo& info : *all)
      EXPECT_TRUE(reader.read(info.name).equal(weights_.global(info.name))) << info.name;
}

TEST_F(HfMultiToken, MayLackItsCopies) {
  Tensors tensors = read_tensors(file_);
  tensors.erase("model.layers.2.embed_tokens.weight");
  tensors.erase("model.layers.2.shared_head.head.weight");
  replace_tensors(file_, tensors);
  EXPECT_NO_THROW(HfReader reader(folder_));
}

TEST_F(HfMultiToken, MayNotHaveAHeadOfItsOwn) {
  Tensors tensors = read_tensors(file_);
  tensors.at("model.layers.2.shared_head.head.weight").add_(1);
  replace_tensors(file_, tensors);
  expect_user_error([&] { HfReader reader(folder_); },
                    {"model.layers.2.shared_head.head.weight", "differs from lm_head.weight"});
}

/// A tied model has no output layer, so its depths have no head: neither is written, and both may
/// be there as copies of the embedding.
TEST_F(HfMultiToken, OfATiedModelNeedsNoHead) {
  Json config = deepseek();
  config["tie_word_embeddings"] = true;
  const TransformerConfig model = parse_hf_config(config, "c").model;
  DeclaredWeights weights(model);
  const std::filesystem::path folder = root_ / "tied", file = folder / "model.safetensors";
  write_hf_directory(weights, {.model = model, .model_type = "deepseek_v3"}, folder);
  Tensors tensors = read_tensors(file);
  const std::string head = "model.layers.2.shared_head.head.weight",
                    embedding = "model.embed_tokens.weight";
  EXPECT_FALSE(tensors.contains("lm_head.weight"));
  EXPECT_FALSE(tensors.contains(head));
  EXPECT_EQ(HfReader(folder).config().model.mtp_num_layers, 1);
  for (const std::string& name : {head, std::string("lm_head.weight")})
    tensors[name] = tensors.at(embedding).clone();
  replace_tensors(file, tensors);
  EXPECT_NO_THROW(HfReader reader(folder));
  tensors.at(head).add_(1);
  replace_tensors(file, tensors);
  expect_user_error([&] { HfReader reader(folder); },
                    {head, "differs from the embedding although config.json ties them"});
  // The tied weight may stand under the name of the output layer.
  tensors.at(head).sub_(1);
  tensors.erase(embedding);
  replace_tensors(file, tensors);
  EXPECT_NO_THROW(HfReader reader(folder));
}

/// transformers drops the layers and keeps the key.
TEST_F(HfMultiToken, IsLeftOutWithANoteWhenTheFolderHasNone) {
  Tensors tensors = read_tensors(file_);
  std::erase_if(tensors,
                [](const auto& item) { return item.first.starts_with("model.layers.2."); });
  replace_tensors(file_, tensors);
  HfReader reader(folder_);
  EXPECT_EQ(reader.config().model.mtp_num_layers, 0);
  ASSERT_EQ(reader.config().notes.size(), 1u);
  EXPECT_NE(reader.config().notes[0].find("multi-token prediction"), std::string::npos);
}

}  // namespace
}  // namespace megatron
