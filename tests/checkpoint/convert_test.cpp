#include "megatron/checkpoint/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "support/temporary_folder.h"

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
  for (const auto& difference : diff_checkpoints(root / "run", root / "back"))
    EXPECT_EQ(difference.largest, 0) << difference.name;
  TinyRun loaded(2);
  load_weights(*find_checkpoint(root / "hf"), *loaded.store);
  EXPECT_TRUE(loaded.tensors()[0].equal(run.tensors()[0]));
  expect_user_error(
      [&] { convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"}); },
      {"not empty"});
}

// A family without a hidden dropout has 0 also in a checkpoint that is converted from its folder.
TEST(Convert, TakesTheDropoutsOfTheFamily) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  EXPECT_EQ(find_checkpoint(root / "run")->model.hidden_dropout, 0.1);
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  convert_checkpoint({.load = root / "hf", .save = root / "back", .format = "megatron"});
  const auto folder = find_checkpoint(root / "hf"), back = find_checkpoint(root / "back");
  EXPECT_EQ(folder->model.hidden_dropout, 0);
  EXPECT_EQ(folder->model.attention_dropout, 0.1);  // config.json has it
  EXPECT_EQ(folder->given_training_fields.at("hidden_dropout"), "the family has none");
  EXPECT_EQ(back->model.hidden_dropout, 0);
  EXPECT_EQ(back->given_training_fields.at("hidden_dropout"), "checkpoint");
}

TEST(Convert, ChangesTheType) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint(
      {.load = root / "run", .save = root / "hf", .format = "hf", .dtype = at::kBFloat16});
  EXPECT_EQ(find_checkpoint(root / "hf")->weight_type, at::kBFloat16);
  EXPECT_EQ(read_json(root / "hf/config.json").at("dtype"), "bfloat16");
}

TEST(Convert, NamesWhatNoFamilyCanHold) {
  const TemporaryFolder root;
  TransformerConfig config = tiny_llama();
  config.apply_layernorm_1p = true;
  save_checkpoint(root / "run", TinyRun(1, config).request(5));
  expect_user_error(
      [&] { convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"}); },
      {"no Hugging Face family can hold this model: \n  the model cannot be written as Hugging "
       "Face "
       "model_type 'llama': --apply-layernorm-1p = true (llama: false)\n  further from it: "});
  EXPECT_FALSE(fs::exists(root / "hf"));
}

TEST(Convert, NamesTensorsThatAFamilyDoesNotHave) {
  const TemporaryFolder root;
  TransformerConfig config = tiny_llama();
  config.position_embedding_type = PositionEmbedding::learned_absolute;
  save_checkpoint(root / "run", TinyRun(1, config).request(5));
  expect_user_error(
      [&] {
        convert_checkpoint(
            {.load = root / "run", .save = root / "hf", .format = "hf", .hf_model_type = "llama"});
      },
      {"Hugging Face model_type 'llama' has no tensors for parameters of the model",
       "embedding.position_embeddings.weight",
       "choose another --hf-model-type, or keep the model in --format megatron"});
}

TEST(Convert, WritesNothingOfADamagedCheckpoint) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  const fs::path file = root / "run/iter_0000005/weights_00000.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() - 5] ^= 1;
  write_file(file, bytes);
  for (const char* format : {"hf", "megatron"}) {
    const fs::path save = root / format;
    expect_user_error(
        [&] { convert_checkpoint({.load = root / "run", .save = save, .format = format}); },
        {"checksum does not match"});
    EXPECT_TRUE(!fs::exists(save) || fs::is_empty(save)) << format;
  }
}

/// A BPE tokenizer of six tokens and its special tokens.
AuxiliaryFiles tiny_tokenizer() {
  return {{"tokenizer.json",
           R"({"added_tokens": [{"id": 5, "content": "<end>", "single_word": false, "lstrip": false,
                             "rstrip": false, "normalized": false, "special": true}],
           "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "d": 4},
                     "merges": ["a b"]}})"},
          {"special_tokens_map.json", R"({"eos_token": "<end>", "pad_token": "d"})"}};
}

void expect_tiny_tokenizer(const fs::path& folder) {
  for (const auto& [name, text] : tiny_tokenizer())
    EXPECT_EQ(read_file(folder / name), text) << folder << name;
  const Json config = read_json(folder / "config.json");
  EXPECT_EQ(config.at("eos_token_id"), 5);
  EXPECT_EQ(config.at("bos_token_id"), 5);
  EXPECT_EQ(config.at("pad_token_id"), 4);
  EXPECT_EQ(read_json(folder / "tokenizer_config.json").at("eos_token"), "<end>");
}

/// transformers reads a vocab.txt line by line, so its lines are the ids of the model.
TEST(Convert, CompletesAVocabularyOfBert) {
  const TemporaryFolder root;
  const std::string own = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na";
  TokenizerConfig config;
  config.tokenizer_type = "BertWordPieceCase";
  config.vocab_file = root.write("vocab.txt", own);
  const auto exported = [&](const AddedIds& model) {
    AuxiliaryFiles files;
    EXPECT_THAT(export_tokenizer(config, files, model).notes, testing::IsEmpty());
    return files;
  };
  EXPECT_EQ(exported({}).at("vocab.txt"), own) << "the folder of another program";
  EXPECT_EQ(exported({.num_rows = 6}).at("vocab.txt"), own + "\n");
  const AuxiliaryFiles files = exported({.num_rows = 10, .num_sentinels = 2});
  EXPECT_EQ(files.at("vocab.txt"), own + "\n[BOS]\n[EOS]\n<extra_id_0>\n<extra_id_1>\n");
  const Json named = Json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(named.at("bos_token"), "[BOS]");
  EXPECT_EQ(named.at("additional_special_tokens"), Json({"<extra_id_0>", "<extra_id_1>"}));
  config.vocab_file = root.write("exported.txt", files.at("vocab.txt"));
  EXPECT_EQ(exported({.num_rows = 10, .num_sentinels = 2}).at("vocab.txt"), files.at("vocab.txt"));
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->encode("a<extra_id_1>a"), (std::vector<std::int32_t>{5, 9, 5}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{6, 5, 8, 7}), "a");
}

TEST(Convert, CarriesTheTokenizerEverywhere) {
  const TemporaryFolder root;
  fs::create_directory(root / "tokenizer");
  for (const auto& [name, text] : tiny_tokenizer()) write_file(root / "tokenizer" / name, text);
  TinyRun run(1);
  run.settings.tokenizer->tokenizer_type = "HuggingFaceTokenizer";
  run.settings.tokenizer->tokenizer_model = (root / "tokenizer").string();
  SaveRequest request = run.request(5);
  save_checkpoint(root / "named", request);  // the tokenizer's files are where the settings say
  const AuxiliaryFiles files = tiny_tokenizer();
  request.tokenizer = &files;
  save_checkpoint(root / "carried", request);
  convert_checkpoint({.load = root / "named", .save = root / "hf of named", .format = "hf"});
  convert_checkpoint(
      {.load = root / "named", .save = root / "release of named", .format = "megatron"});
  fs::remove_all(root / "tokenizer");

  convert_checkpoint({.load = root / "carried", .save = root / "hf of carried", .format = "hf"});
  convert_checkpoint(
      {.load = root / "hf of carried", .save = root / "release", .format = "megatron"});
  convert_checkpoint({.load = root / "release", .save = root / "hf of release", .format = "hf"});
  convert_checkpoint({.load = root / "hf of release", .save = root / "hf of hf", .format = "hf"});
  convert_checkpoint(
      {.load = root / "release of named", .save = root / "hf of release of named", .format = "hf"});
  for (const char* name :
       {"hf of named", "hf of carried", "hf of release", "hf of hf", "hf of release of named"})
    expect_tiny_tokenizer(root / name);

  const ConvertResult lost =
      convert_checkpoint({.load = root / "named", .save = root / "lost", .format = "hf"});
  ASSERT_EQ(lost.notes.size(), 1u);
  EXPECT_THAT(lost.notes[0], testing::HasSubstr("no tokenizer is written"));
  EXPECT_THAT(lost.notes[0], testing::HasSubstr("(ENOENT); give --tokenizer-model"));
}

TEST(Convert, AnotherTokenizerTakesTheIdsOfTheFirst) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  Json config = read_json(root / "hf/config.json");
  config["eos_token_id"] = {7, 8};
  write_file(root / "hf/config.json", config.dump());
  write_file(root / "hf/tokenizer.json",
             R"({"model": {"type": "BPE", "vocab": {"x": 0, "y": 1}, "merges": []}})");
  write_file(root / "hf/generation_config.json", R"({"eos_token_id": [7, 8]})");
  convert_checkpoint({.load = root / "hf", .save = root / "same", .format = "hf"});
  EXPECT_EQ(read_json(root / "same/config.json").at("eos_token_id"), Json({7, 8}));

  fs::create_directory(root / "tokenizer");
  for (const auto& [name, text] : tiny_tokenizer()) write_file(root / "tokenizer" / name, text);
  TokenizerConfig other;
  other.tokenizer_model = (root / "tokenizer").string();
  convert_checkpoint(
      {.load = root / "hf", .save = root / "other", .format = "hf", .tokenizer = {other}});
  expect_tiny_tokenizer(root / "other");
  EXPECT_FALSE(fs::exists(root / "other/generation_config.json"));
}

// In transformers, null says that there is no such token.
TEST(Convert, NullIdsStayNull) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  for (const auto& [name, text] : tiny_tokenizer()) write_file(root / "hf" / name, text);
  Json config = read_json(root / "hf/config.json");
  config["bos_token_id"] = config["eos_token_id"] = nullptr;
  config.erase("pad_token_id");
  write_file(root / "hf/config.json", config.dump());
  convert_checkpoint({.load = root / "hf", .save = root / "ours", .format = "megatron"});
  for (const char* load : {"hf", "ours"}) {
    const fs::path save = root / (std::string(load) + " again");
    convert_checkpoint({.load = root / load, .save = save, .format = "hf"});
    const Json written = read_json(save / "config.json");
    EXPECT_TRUE(written.at("bos_token_id").is_null()) << load;
    EXPECT_TRUE(written.at("eos_token_id").is_null()) << load;
    EXPECT_EQ(written.at("pad_token_id"), 4) << load;  // no field: the tokenizer's
  }
}

TEST(Convert, FlagsChangeTheTokenizer) {
  const TemporaryFolder root;
  fs::create_directory(root / "tokenizer");
  for (const auto& [name, text] : tiny_tokenizer()) write_file(root / "tokenizer" / name, text);
  TinyRun run(1);
  run.settings.tokenizer->tokenizer_model = (root / "tokenizer").string();
  save_checkpoint(root / "run", run.request(5));
  TokenizerFlags bare;
  bare.config.tokenizer_hf_no_include_special_tokens = true;
  bare.given = {"tokenizer_hf_no_include_special_tokens"};
  const auto convert = [&](const std::string& format, const TokenizerFlags& flags) {
    return convert_checkpoint(
        {.load = root / "run", .save = root / format, .format = format, .tokenizer = flags});
  };
  convert("megatron", bare);
  EXPECT_TRUE(find_checkpoint(root / "megatron")->tokenizer.tokenizer_hf_no_include_special_tokens);
  EXPECT_THAT(convert("hf", bare).notes,
              testing::Contains(
                  testing::HasSubstr("--tokenizer-hf-no-include-special-tokens is not written")));
  fs::remove_all(root / "hf");
  TokenizerFlags of_ids;
  of_ids.config.null_tokenizer_pad_id = 3;
  of_ids.given = {"null_tokenizer_pad_id"};
  expect_user_error([&] { convert("hf", of_ids); },
                    {"--null-tokenizer-pad-id has an effect only with NullTokenizer"});
  EXPECT_FALSE(fs::exists(root / "hf"));
}

AuxiliaryFiles gpt2_files() {
  return {{"vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})"},
          {"merges.txt", "#version: 0.2\na b\n"}};
}

TEST(CarriedTokenizer, ComparesFilesOfOneName) {
  const AuxiliaryFiles gpt2 = gpt2_files(), bpe = tiny_tokenizer();
  AuxiliaryFiles both = gpt2;
  both["tokenizer.json"] = bpe.at("tokenizer.json");
  EXPECT_EQ(same_vocabulary(both, gpt2), true);
  EXPECT_EQ(same_vocabulary(bpe, both), true);
  EXPECT_EQ(same_vocabulary(bpe, gpt2), std::nullopt);
  AuxiliaryFiles other = gpt2;
  other["merges.txt"] = "#version: 0.2\nb a\n";
  EXPECT_EQ(same_vocabulary(both, other), false);
  const AuxiliaryFiles torn{{"tokenizer.json", "{}"}, {"merges.txt", "a b"}};  // lacks vocab.json
  EXPECT_EQ(same_vocabulary(torn, gpt2), std::nullopt);
  EXPECT_EQ(same_vocabulary({{"tokenizer.model", "x"}}, {{"tokenizer.model", "y"}}), false);
}

TEST(CarriedTokenizer, LeavesOutSettingsOfAnotherVersion) {
  Manifest manifest;
  manifest.settings = Json{{"tokenizer_type", "TokenizerOfTomorrow"}, {"vocab_size", "64"}};
  TokenizerConfig expected;
  expected.vocab_size = 64;
  EXPECT_EQ(stored_tokenizer(manifest, "folder"), expected);
}

TEST(CarriedTokenizer, TheSameVocabularyByOtherFilesChangesNothing) {
  AuxiliaryFiles files = gpt2_files();
  files["tokenizer.json"] = "{}";
  files["generation_config.json"] = R"({"eos_token_id": 3})";
  const AuxiliaryFiles before = files;
  replace_tokenizer_files(gpt2_files(), files);
  EXPECT_EQ(files, before);
  replace_tokenizer_files(tiny_tokenizer(), files);
  EXPECT_EQ(files, tiny_tokenizer());
}

TEST(Convert, ByteTokenizerReplacesTheTokenizerOfTheOrigin) {
  const TemporaryFolder root;
  TinyRun run(1);
  run.settings.tokenizer->tokenizer_type = "ByteTokenizer";
  CheckpointSource origin{.kind = CheckpointSource::Kind::hugging_face,
                          .folder = root / "origin",
                          .model = {},
                          .given_training_fields = {},
                          .notes = {},
                          .auxiliary_files = tiny_tokenizer()};
  origin.auxiliary_files["generation_config.json"] = R"({"eos_token_id": 5})";
  SaveRequest request = run.request(5);
  request.origin = &origin;
  save_checkpoint(root / "run", request);
  convert_checkpoint({.load = root / "run", .save = root / "hf", .format = "hf"});
  convert_checkpoint({.load = root / "run", .save = root / "release", .format = "megatron"});
  convert_checkpoint({.load = root / "release", .save = root / "hf of release", .format = "hf"});
  for (const char* folder : {"hf", "hf of release"}) {
    EXPECT_EQ(read_file(root / folder / "tokenizer.json"), byte_tokenizer_json());
    EXPECT_EQ(read_json(root / folder / "config.json").at("eos_token_id"), 256);
    EXPECT_FALSE(fs::exists(root / folder / "special_tokens_map.json"));
    EXPECT_FALSE(fs::exists(root / folder / "generation_config.json"));
  }
}

TEST(Convert, RefusesWeightsThatAreNotFinite) {
  const TemporaryFolder root;
  TinyRun run(1);
  run.store->find("output_layer.weight")->value()[3][2] = NAN;
  run.store->find("decoder.final_layernorm.weight")->value()[1] = INFINITY;
  save_checkpoint(root / "run", run.request(5));
  for (const char* format : {"hf", "megatron"}) {
    ConvertRequest request{.load = root / "run", .save = root / format, .format = format};
    expect_user_error(
        [&] { convert_checkpoint(request); },
        {"weights that are not finite: 2", "'decoder.final_layernorm.weight': 1 of 16",
         "'output_layer.weight': 1 of 304", "--keep-non-finite"});
    EXPECT_FALSE(fs::exists(root / format));
    request.allow_non_finite = true;
    EXPECT_THAT(convert_checkpoint(request).notes[0],
                testing::HasSubstr("not finite:\n    tensor 'decoder.final_layernorm.weight'"));
  }
}

TEST(Convert, RefusesATypeThatOverflows) {
  const TemporaryFolder root;
  TinyRun run(1);
  run.store->find("output_layer.weight")->value()[3][2] = 1e5;
  save_checkpoint(root / "run", run.request(5));
  expect_user_error(
      [&] {
        convert_checkpoint(
            {.load = root / "run", .save = root / "hf", .format = "hf", .dtype = at::kHalf});
      },
      {"'output_layer.weight': 1 of 304", "overflow in the type of --dtype"});
  convert_checkpoint(
      {.load = root / "run", .save = root / "hf", .format = "hf", .dtype = at::kBFloat16});
}

TEST(Convert, OverwritesNothing) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  for (const char* format : {"hf", "megatron"}) {
    const std::string first = std::string(format) + " first";
    convert_checkpoint({.load = root / "run", .save = root / first, .format = format});
    fs::create_directory(root / "foreign");
    write_file(root / "foreign/thesis.tex", "years of work");
    for (const auto& [folder, held] :
         {std::pair<std::string, std::string>{"run", "checkpoints of a run or of a conversion"},
          {first, std::string(format) == "hf" ? "a Hugging Face model" : "checkpoints"},
          {"foreign", "thesis.tex"}}) {
      expect_user_error(
          [&] {
            convert_checkpoint({.load = root / "run", .save = root / folder, .format = format});
          },
          {"--save", folder + ": is not empty: it holds " + held, "choose a new folder"});
    }
    EXPECT_EQ(find_checkpoint(root / "run")->iteration, 5);
  }
}

TEST(Inspect, TellsWhatIsThere) {
  const TemporaryFolder root;
  save_checkpoint(root.path(), TinyRun(1).request(5));
  const Json json = inspect_checkpoint(root.path());
  EXPECT_EQ(json.at("iteration"), 5);
  // 2·19·16 embeddings; per layer 16·(16+16) qkv, 16·16 proj, 3·24·16 MLP and 2·16 norms; 16 final
  // norm.
  EXPECT_EQ(json.at("parameters"),
            2 * 19 * 16 + 2 * (16 * 32 + 16 * 16 + 3 * 24 * 16 + 2 * 16) + 16);
  EXPECT_THAT(inspection_text(json), testing::HasSubstr("exp_avg.output_layer.weight"));
}

}  // namespace
}  // namespace megatron
