// Hugging Face directories with missing or surplus parts.
#include "megatron/checkpoint/hf_directory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
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
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/transformer_config.h"
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

/// Writes a folder of one file with the tiny model, whose output layer is the embedding.
void write_tied(const fs::path& folder, const fs::path& scratch) {
  TransformerConfig config = tiny_llama();
  config.untie_embeddings_and_output_weights = false;
  save_checkpoint(scratch, TinyRun(1, config).request(5));
  convert_checkpoint({.load = scratch, .save = folder, .format = "hf"});
}

/// Writes the file again, with tensors under other names.
void rename_tensors(const fs::path& path, const std::map<std::string, std::string>& new_names,
                    const std::map<std::string, std::string>& metadata = {}) {
  const fs::path old = path.string() + ".old";
  fs::rename(path, old);
  const SafetensorsFile file(old);
  std::map<std::string, const StoredTensor*> tensors;
  std::vector<TensorHeader> headers;
  for (const StoredTensor& tensor : file.tensors()) {
    const auto renamed = new_names.find(tensor.name);
    const std::string name = renamed == new_names.end() ? tensor.name : renamed->second;
    tensors[name] = &tensor;
    headers.push_back({name, tensor.type, tensor.shape});
  }
  SafetensorsWriter writer(path, headers, metadata);
  for (const TensorHeader& header : writer.order())
    writer.write(file.bytes(*tensors.at(header.name)));
  writer.close();
  fs::remove(old);
}

// What safetensors.torch.save_model() writes of a tied model.
TEST(HfDirectory, ATiedPairMayHaveTheNameOfTheOutputLayer) {
  const TemporaryFolder root;
  write_tied(root / "hf", root / "run");
  rename_tensors(root / "hf/model.safetensors", {{"model.embed_tokens.weight", "lm_head.weight"}},
                 {{"model.embed_tokens.weight", "lm_head.weight"}});
  for (const auto& difference : diff_checkpoints(root / "run", root / "hf"))
    EXPECT_TRUE(difference.remark.empty() && difference.largest == 0) << difference.name;
  HfReader reader(root / "hf");
  EXPECT_EQ(reader.find("embedding.word_embeddings.weight")->shape, (Shape{19, 16}));
  EXPECT_EQ(reader.find("output_layer.weight"), nullptr);
  Json config = read_json(root / "hf/config.json");
  config["tie_word_embeddings"] = false;
  write_file(root / "hf/config.json", config.dump());
  expect_user_error([&] { HfReader untied(root / "hf"); },
                    {"are missing: 1\n    model.embed_tokens.weight"});
}

TEST(HfDirectory, MissingMisshapenAndUnusedTensorsComeInOneMessage) {
  const TemporaryFolder root;
  write_tied(root / "hf", root / "run");
  rename_tensors(root / "hf/model.safetensors", {{"model.norm.weight", "model.final.weight"}});
  Json config = read_json(root / "hf/config.json");
  config["vocab_size"] = 20;
  write_file(root / "hf/config.json", config.dump());
  expect_user_error([&] { HfReader reader(root / "hf"); },
                    {"3 problems", "asks for are missing: 1\n    model.norm.weight",
                     "have other shapes than config.json says: 1\n    ",
                     "tensor 'model.embed_tokens.weight': [19, 16], expected [20, 16]",
                     "model_type 'llama' does not use: 1\n    model.final.weight"});
}

TEST(HfDirectory, ShardsWithoutAnIndexSayWhatToMake) {
  const TemporaryFolder root;
  write_shards(root / "hf", TinyRun(1), root / "run");
  fs::remove(root / "hf/model.safetensors.index.json");
  expect_user_error(
      [&] { HfDirectory directory(root / "hf"); },
      {"no model.safetensors and no model.safetensors.index.json", "it holds model-00001-of-0",
       "download model.safetensors.index.json, or make it",
       R"("weight_map": {"TENSOR": "model-00001-of-0)"});
}

// transformers looks for model.safetensors before it looks for the index.
TEST(HfDirectory, AStrayFileBesideTheIndexIsNoted) {
  const TemporaryFolder root;
  write_shards(root / "hf", TinyRun(1), root / "run");
  EXPECT_TRUE(HfDirectory(root / "hf").config().notes.empty());
  convert_checkpoint({.load = root / "run", .save = root / "whole", .format = "hf"});
  EXPECT_TRUE(HfDirectory(root / "whole").config().notes.empty());
  fs::copy(root / "whole/model.safetensors", root / "hf/model.safetensors");
  const HfDirectory directory(root / "hf");
  ASSERT_EQ(directory.config().notes.size(), 1u);
  EXPECT_NE(directory.config().notes[0].find("model.safetensors is read, as transformers does"),
            std::string::npos);
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

/// As transformers writes them; the other keys stay.
TEST(ClassNames, AreInTheConfig) {
  AuxiliaryFiles files{{"config.json", R"({"model_type": "bert", "id2label": {"0": "LABEL_0"}})"}};
  set_class_names({"no", "yes"}, files);
  EXPECT_EQ(Json::parse(files.at("config.json")), Json::parse(R"({"model_type": "bert",
      "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}})"));
  files.clear();
  set_class_names({"no", "yes"}, files);
  EXPECT_EQ(Json::parse(files.at("config.json")).size(), 2u);
}

}  // namespace
}  // namespace megatron
