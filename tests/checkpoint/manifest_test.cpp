#include "megatron/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "megatron/base/checksum.h"

namespace megatron {
namespace {

Manifest example() {
  Manifest manifest;
  manifest.progress = {.iteration = 7,
                       .consumed_train_samples = 56,
                       .scheduler_num_steps = 56,
                       .floating_point_operations = 1.25e20};
  manifest.model = Json{{"num_layers", 2}};
  manifest.settings = Json{{"lr", "0.001"}};
  manifest.optimizer = OptimizerRecord{"adam", 7};
  manifest.model_type = "llama";
  manifest.files["hugging_face/config.json"] = 42;
  manifest.tensors["w"] = {
      .type = SafetensorsDtype::BF16,
      .shape = {4, 6},
      .pieces = {
          {"weights_00000.safetensors", "w@[0, 0]", slice_at({0, 0}, {1, 6}), 0xfedcba9876543210u},
          {"weights_00000.safetensors", "w@[1, 0]", slice_at({1, 0}, {3, 2}), 1},
          {"weights_00001.safetensors", "w@[1, 2]", slice_at({1, 2}, {3, 4}), 2, {}, {5, 6}}}};
  manifest.tensors["exp_avg.w"] = {
      .kind = TensorKind::optimizer,
      .shape = {},
      .pieces = {{"optimizer_00000.safetensors", "x", whole_slice({}), 3}}};
  return manifest;
}

/// Returns the text after `edit`, with its checksum updated.
std::string edited(const std::function<void(Json&)>& edit) {
  Json json = Json::parse(manifest_text(example()));
  json.erase("xxh3");
  edit(json);
  json["xxh3"] = checksum_hex(checksum(json.dump()));
  return json.dump();
}

TEST(Manifest, ReadsBackWhatItWrote) {
  const std::string text = manifest_text(example());
  const Manifest read = parse_manifest(text, "m");
  EXPECT_EQ(manifest_text(read), text);
  EXPECT_EQ(read.progress, example().progress);
  EXPECT_EQ(read.optimizer, example().optimizer);
  EXPECT_EQ(read.tensors.at("w").pieces[0].checksum, 0xfedcba9876543210u);
  EXPECT_EQ(read.tensors.at("w").pieces[2].slice.global_offset, (Shape{1, 2}));
  EXPECT_EQ(read.tensors.at("w").pieces[2].blocks, (std::vector<std::uint64_t>{5, 6}));
}

TEST(Manifest, NamesWhatIsBroken) {
  struct Case {
    std::string name;
    std::function<void(Json&)> edit;
    std::vector<std::string> words;
  };
  const auto piece = [](Json& json) -> Json& { return json["tensors"]["w"]["pieces"][1]; };
  const std::vector<Case> cases{
      {"format", [](Json& j) { j["format"] = "x"; }, {"format"}},
      {"version", [](Json& j) { j["format_version"] = 2; }, {"format_version 2"}},
      {"no progress", [](Json& j) { j.erase("progress"); }, {"progress"}},
      {"negative iteration",
       [](Json& j) { j["progress"]["iteration"] = -1; },
       {"iteration", "negative"}},
      {"fractional iteration", [](Json& j) { j["progress"]["iteration"] = 1.5; }, {"iteration"}},
      {"tensors a list", [](Json& j) { j["tensors"] = Json::array(); }, {"tensors"}},
      {"kind", [](Json& j) { j["tensors"]["w"]["kind"] = "x"; }, {"'w'", "kind"}},
      {"dtype", [](Json& j) { j["tensors"]["w"]["dtype"] = "F31"; }, {"'w'", "dtype", "F31"}},
      {"no shape", [](Json& j) { j["tensors"]["w"].erase("shape"); }, {"'w'", "shape"}},
      {"negative shape",
       [](Json& j) {
         j["tensors"]["w"]["shape"] = {-4, 6};
       },
       {"'w'", "shape"}},
      {"huge shape",
       [](Json& j) {
         j["tensors"]["w"]["shape"] = {std::int64_t{1} << 62, 6};
       },
       {"'w'", "not valid"}},
      {"missing piece",
       [](Json& j) { j["tensors"]["w"]["pieces"].erase(2); },
       {"'w'", "12 of 24 elements"}},
      {"overlap",
       [&](Json& j) {
         piece(j)["offset"] = {1, 1};
       },
       {"'w'", "overlap"}},
      {"outside",
       [&](Json& j) {
         piece(j)["offset"] = {2, 0};
       },
       {"'w'", "outside"}},
      {"other rank", [&](Json& j) { piece(j)["offset"] = {2}; }, {"'w'", "outside"}},
      {"path", [&](Json& j) { piece(j)["file"] = "../x"; }, {"'w'", "plain name"}},
      {"checksum", [&](Json& j) { piece(j)["xxh3"] = "12"; }, {"'w'", "16 hexadecimal"}},
      {"checksum type", [&](Json& j) { piece(j)["xxh3"] = 12; }, {"'w'", "16 hexadecimal"}},
      {"no key", [&](Json& j) { piece(j).erase("key"); }, {"'w'", "key"}},
      {"auxiliary path",
       [](Json& j) { j["files"]["../x"] = "0000000000000000"; },
       {"auxiliary", "../x"}},
      {"optimizer", [](Json& j) { j["optimizer"] = 3; }, {"optimizer"}},
  };
  for (const Case& broken : cases) {
    expect_user_error([&] { parse_manifest(edited(broken.edit), "dir/manifest.json"); },
                      broken.words, broken.name);
  }
  expect_user_error([] { parse_manifest("", "dir/manifest.json"); },
                    {"dir/manifest.json", "empty"});
  expect_user_error([] { parse_manifest("[]", "dir/manifest.json"); }, {"dir/manifest.json"});
}

TEST(Manifest, NoticesAnEditByItsOwnChecksum) {
  std::string text = manifest_text(example());
  const std::size_t place = text.find("\"iteration\": 7");
  text[place + 13] = '8';
  expect_user_error([&] { parse_manifest(text, "m"); }, {"m", "checksum"});
}

TEST(Manifest, SurvivesRandomDamage) {
  std::mt19937 random(2);
  const std::string text = manifest_text(example());
  for (int round = 0; round < 2000; ++round) {
    Json json = Json::parse(mutate(text, random), nullptr, false);
    std::string damaged = json.is_discarded() ? mutate(text, random) : "";
    if (json.is_object()) {
      json.erase("xxh3");
      json["xxh3"] =
          checksum_hex(checksum(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
      damaged = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    try {
      parse_manifest(damaged, "m");
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
    }
  }
}

}  // namespace
}  // namespace megatron
