#include "megatron/formats/gguf.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "formats/fixtures.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/checkpoint/gguf/gguf_model.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/transformer_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// Returns the Hugging Face tensor of this shape that a file's bytes have.
at::Tensor read(const std::string& bytes, const GgufForm& form, Shape shape) {
  const bool is_q8_0 = form.type == kGgufQ80;
  if (is_q8_0) shape.back() = shape.back() / 32 * 34;
  const at::Tensor rows =
      restored_rows(view_bytes(std::as_bytes(std::span(bytes)),
                               is_q8_0 ? at::kByte : number_type(form.type), shape),
                    form);
  return rows.scalar_type() == at::kByte ? dequantized_q8_0(rows) : rows.to(at::kFloat);
}

// The numbers and bytes are those of the package gguf.
TEST(GgufForm, StoresNumbersAsThePackageDoes) {
  const Json expected = read_json(fixture("gguf.json"));
  for (const Json& facts : expected["tensors"]) {
    const std::string type = facts["type"];
    SCOPED_TRACE(type);
    const GgufForm form{.type = type == "F32"    ? kGgufF32
                                : type == "F16"  ? kGgufF16
                                : type == "Q8_0" ? kGgufQ80
                                                 : kGgufBf16};
    const std::string bytes = from_hex(facts["hex"].get<std::string>());
    const at::Tensor numbers = at::tensor(facts["numbers"].get<std::vector<float>>()),
                     given = at::tensor(facts["from_numbers"].get<std::vector<float>>());
    const std::int64_t row = facts["shape"].back().get<std::int64_t>(),
                       count = numbers.numel() / row;
    EXPECT_EQ(to_hex(gguf_bytes(given.view({count, row}), form)), facts["hex"].get<std::string>());
    EXPECT_TRUE(read(bytes, form, {count, row}).equal(numbers.view({count, row})));
    EXPECT_TRUE(read(bytes, form, {count * row}).equal(numbers));
  }
}

TEST(GgufForm, PutsChannelsThatRotateTogetherSideBySide) {
  const GgufForm form{.rotary_heads = 2, .added = 1};
  const at::Tensor theirs = at::arange(24, at::kFloat).view({8, 3});
  const std::string bytes = gguf_bytes(theirs, form);
  const at::Tensor stored = read(bytes, {}, {8, 3}).sub(1);
  const std::int64_t order[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (std::int64_t row = 0; row < 8; ++row)
    EXPECT_TRUE(stored[row].equal(theirs[order[row]])) << row;
  EXPECT_TRUE(read(bytes, form, {8, 3}).equal(theirs));
}

TEST(GgufForm, MatricesInBlocksStayInBytes) {
  const GgufForm form{.type = kGgufQ80, .rotary_heads = 2};
  const at::Tensor theirs = at::arange(8 * 32, at::kFloat).view({8, 32});
  const std::string bytes = gguf_bytes(theirs, form);
  const at::Tensor packed = view_bytes(std::as_bytes(std::span(bytes)), at::kByte, {8, 34}),
                   rows = restored_rows(packed, form);
  EXPECT_EQ(rows.scalar_type(), at::kByte);
  // Half of the largest scale, 255 / 127, and its rounding to 16 bits.
  EXPECT_TRUE(dequantized_q8_0(rows.narrow(0, 5, 2)).allclose(theirs.narrow(0, 5, 2), 0, 1.2));
}

TEST(Gguf, ATinyLlamaGoesThereAndBack) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "gguf", .format = "gguf"});
  for (const char* load : {"gguf", "gguf/model.gguf"}) {
    const auto source = find_checkpoint(root / load);
    EXPECT_EQ(source->model_type, "llama");
    EXPECT_EQ(source->weight_type, at::kFloat);
    for (const auto& difference : diff_checkpoints(root / "run", root / load))
      EXPECT_EQ(difference.largest, 0) << difference.name;
  }
  std::ostringstream out;
  verify_checkpoints(root / "gguf/model.gguf", /*all=*/false, out);
  EXPECT_NE(out.str().find("complete"), std::string::npos);
  convert_checkpoint({.load = root / "gguf", .save = root / "back", .format = "megatron"});
  for (const auto& difference : diff_checkpoints(root / "run", root / "back"))
    EXPECT_EQ(difference.largest, 0) << difference.name;
}

TEST(Gguf, TypesOfMatricesAreChosen) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint(
      {.load = root / "run", .save = root / "bf16", .format = "gguf", .dtype = at::kBFloat16});
  EXPECT_EQ(find_checkpoint(root / "bf16")->weight_type, at::kBFloat16);
  convert_checkpoint(
      {.load = root / "run", .save = root / "q8", .format = "gguf", .is_q8_0 = true});
  for (const auto& difference : diff_checkpoints(root / "run", root / "q8"))
    EXPECT_LT(difference.largest, 0.01) << difference.name;
  expect_user_error(
      [&] {
        convert_checkpoint(
            {.load = root / "run", .save = root / "hf", .format = "hf", .is_q8_0 = true});
      },
      {"--dtype q8_0 needs --format gguf"});
}

TEST(Gguf, AModelThatLlamaCppDoesNotComputeIsRefused) {
  const TemporaryFolder root;
  TransformerConfig config = tiny_llama();
  config.window_size = {{3, 0}};
  save_checkpoint(root / "run", TinyRun(1, config).request(5));
  expect_user_error(
      [&] { convert_checkpoint({.load = root / "run", .save = root / "gguf", .format = "gguf"}); },
      {"no Hugging Face family can hold this model"});
  EXPECT_FALSE(fs::exists(root / "gguf"));
}

TEST(Gguf, FilesOfOneModelAreFound) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "gguf", .format = "gguf"});
  const fs::path file = root / "gguf/model.gguf", first = root / "gguf/m-00001-of-00002.gguf",
                 second = root / "gguf/m-00002-of-00002.gguf";
  // The second part has the second half of the tensors.
  const std::string content = read_file(file);
  const GgufFile whole = read_gguf(std::as_bytes(std::span(content)), "whole");
  const std::size_t half = whole.tensors.size() / 2;
  const auto write = [&](const fs::path& path, const Json& metadata, std::size_t begin,
                         std::size_t end) {
    std::vector<GgufTensor> tensors(whole.tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                    whole.tensors.begin() + static_cast<std::ptrdiff_t>(end));
    std::string part = gguf_header(metadata, tensors);
    for (std::size_t i = begin; i < end; ++i) {
      part.resize(tensors[i - begin].bytes.begin, '\0');
      part += content.substr(whole.tensors[i].bytes.begin, whole.tensors[i].bytes.size());
    }
    write_file(path, part);
  };
  write(first, *whole.metadata, 0, half);
  expect_user_error([&] { find_checkpoint(first); },
                    {"files of the model are missing", "m-00002-of-00002.gguf"});
  write(second, {{"split.no", 1U}}, half, whole.tensors.size());
  expect_user_error([&] { find_checkpoint(root / "gguf"); }, {"several GGUF files", "model.gguf"});
  fs::remove(file);
  for (const fs::path& load : {first, second, root / "gguf"})
    for (const auto& difference : diff_checkpoints(root / "run", load))
      EXPECT_EQ(difference.largest, 0) << difference.name;
}

TEST(Gguf, MetadataIsChecked) {
  const TemporaryFolder root;
  save_checkpoint(root / "run", TinyRun(1).request(5));
  convert_checkpoint({.load = root / "run", .save = root / "gguf", .format = "gguf"});
  const fs::path file = root / "gguf/model.gguf";
  const std::string content = read_file(file);
  const GgufFile whole = read_gguf(std::as_bytes(std::span(content)), "whole");
  const auto expect = [&](const std::string& key, const Json& value,
                          const std::vector<std::string>& words) {
    Json metadata = *whole.metadata;
    metadata[key] = value;
    if (value.is_null()) metadata.erase(key);
    std::vector<GgufTensor> tensors = whole.tensors;
    std::string changed = gguf_header(metadata, tensors);
    changed.resize(tensors.back().bytes.end, '\0');
    write_file(file, changed);
    expect_user_error(
        [&] { convert_checkpoint({.load = file, .save = root / "hf", .format = "hf"}); }, words,
        key);
  };
  expect("general.architecture", "rwkv", {"'rwkv' is not supported", "supported: llama, "});
  expect("general.architecture", nullptr, {"general.architecture"});
  expect("llama.block_count", 0U, {"llama.block_count", "must be at least 1"});
  expect("llama.block_count", 1U, {"model_type 'llama' does not use", "blk.1."});
  expect("llama.block_count", 3U, {"are missing", "model.layers.2."});
  expect("llama.embedding_length", "x", {"llama.embedding_length"});
  expect("llama.attention.layer_norm_rms_epsilon", nullptr, {"layer_norm_rms_epsilon"});
  expect("llama.rope.dimension_count", 2U, {"rope.dimension_count", "must be the size of a head"});
  expect("llama.rope.scaling.type", "longrope", {"rope_type"});
}

TEST(Gguf, CarriesAByteLevelTokenizer) {
  const TemporaryFolder root;
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const Json end = {{"id", 3},         {"content", "<end>"}, {"single_word", false},
                    {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                    {"special", true}};
  const Json json = {{"added_tokens", Json::array({end})},
                     {"pre_tokenizer", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}},
                       {"merges", Json::array({Json::array({"a", "b"})})}}}};
  write_file(root / "tokenizer.json", json.dump());
  write_file(root / "tokenizer_config.json", R"({"chat_template": "{{ x }}"})");
  Json metadata = {{"tokenizer.ggml.eos_token_id", 3}};
  std::vector<std::string> notes;
  add_gguf_tokenizer(root.path(), 5, metadata, notes);
  EXPECT_TRUE(notes.empty()) << notes.front();
  EXPECT_EQ(metadata["tokenizer.ggml.model"], "gpt2");
  EXPECT_EQ(metadata["tokenizer.ggml.pre"], "gpt-2");
  EXPECT_EQ(metadata["tokenizer.ggml.tokens"], Json({"a", "b", "ab", "<end>", "[PAD4]"}));
  EXPECT_EQ(metadata["tokenizer.ggml.token_type"], Json({1, 1, 1, 3, 5}));
  EXPECT_EQ(metadata["tokenizer.ggml.merges"], Json::array({"a b"}));
  EXPECT_EQ(metadata["tokenizer.chat_template"], "{{ x }}");
  const AuxiliaryFiles files = tokenizer_of_gguf(metadata, "model.gguf", notes);
  const Json back = Json::parse(files.at("tokenizer.json"));
  EXPECT_EQ(back["model"]["vocab"], Json({{"a", 0}, {"b", 1}, {"ab", 2}, {"<end>", 3}}));
  EXPECT_EQ(back["added_tokens"], Json::array({end}));
  EXPECT_EQ(Json::parse(files.at("tokenizer_config.json"))["eos_token"], "<end>");
  metadata["tokenizer.ggml.pre"] = "viking";
  EXPECT_TRUE(tokenizer_of_gguf(metadata, "model.gguf", notes).empty());
  EXPECT_NE(notes.at(0).find("viking"), std::string::npos);
  notes.clear();
  write_file(root / "tokenizer.json", R"({"pre_tokenizer": {"type": "Whitespace"}})");
  add_gguf_tokenizer(root.path(), 5, metadata, notes);
  EXPECT_EQ(metadata["tokenizer.ggml.model"], "no_vocab");
  EXPECT_EQ(notes.size(), 1U);
}

}  // namespace
}  // namespace megatron
