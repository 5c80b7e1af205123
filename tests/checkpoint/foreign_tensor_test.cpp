#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"

#include <gtest/gtest.h>

#include <map>

#include "expect_user_error.h"

namespace megatron {
namespace {

/// Elements 0 to 4 in one file and 5 to 11 in another.
StoredElements two_files() {
  return {.dtype = {"float32", 4},
          .runs = {{.file = "a", .offset = 100, .first = 0, .count = 5},
                   {.file = "b", .offset = 8, .first = 5, .count = 7}}};
}

TEST(StoredElements, AppendsAPartOfOthers) {
  StoredElements all;
  all.append(two_files(), 10, 2, "x");
  all.append(two_files(), 3, 4, "x");
  ASSERT_EQ(all.runs.size(), 3u);
  EXPECT_EQ(all.count(), 6);
  const StoredRun &end = all.runs[0], &before = all.runs[1], &behind = all.runs[2];
  EXPECT_EQ(end.file, "b");
  EXPECT_EQ(end.offset, 8u + 5 * 4);
  EXPECT_EQ(end.first, 0);
  EXPECT_EQ(before.file, "a");
  EXPECT_EQ(before.offset, 100u + 3 * 4);
  EXPECT_EQ(before.first, 2);
  EXPECT_EQ(before.count, 2);
  EXPECT_EQ(behind.file, "b");
  EXPECT_EQ(behind.offset, 8u);
  EXPECT_EQ(behind.first, 4);
  EXPECT_EQ(behind.count, 2);
}

TEST(StoredElements, RefusesMissingElementsAndOtherTypes) {
  StoredElements all;
  expect_user_error([&] { all.append(two_files(), 10, 3, "w"); },
                    {"w has 3 elements", "the shards have 2 of them"});
  all.append(two_files(), 0, 1, "w");
  StoredElements halves = two_files();
  halves.dtype = {"float16", 2};
  expect_user_error([&] { all.append(halves, 0, 1, "w"); }, {"its type differs"});
}

TEST(AddPieces, CutsASliceWhereFilesEnd) {
  std::vector<Piece> pieces;
  // Rows 1 and 2 of three are rows 10 and 11 of the whole.
  const TensorSlice rows{.global_offset = {10, 0}, .local_offset = {1, 0}, .shape = {2, 4}};
  ASSERT_TRUE(add_pieces(two_files(), {3, 4}, rows, pieces));
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].file, "a");
  EXPECT_EQ(pieces[0].offset, 100u + 4 * 4);
  EXPECT_EQ(pieces[0].slice.global_offset, (Shape{10, 0}));
  EXPECT_EQ(pieces[0].slice.shape, (Shape{1, 1}));
  EXPECT_EQ(pieces[1].file, "b");
  EXPECT_EQ(pieces[1].offset, 8u);
  EXPECT_EQ(pieces[1].slice.global_offset, (Shape{10, 1}));
  EXPECT_EQ(pieces[1].slice.shape, (Shape{1, 3}));
  EXPECT_EQ(pieces[2].offset, 8u + 3 * 4);
  EXPECT_EQ(pieces[2].slice.global_offset, (Shape{11, 0}));
  EXPECT_EQ(pieces[2].slice.shape, (Shape{1, 4}));
}

TEST(AddPieces, LeavesSlicesOfOneFileWholeAndRefusesGaps) {
  std::vector<Piece> pieces;
  const StoredElements one{.dtype = {"bfloat16", 2},
                           .runs = {{.file = "a", .offset = 6, .first = 0, .count = 24}}};
  const Shape shape{2, 3, 4};
  EXPECT_TRUE(add_pieces(one, shape, {{5, 0, 0}, {1, 1, 0}, {1, 2, 4}}, pieces));
  EXPECT_FALSE(add_pieces(one, shape, {{0, 0, 0}, {0, 1, 0}, {2, 2, 4}}, pieces));
  EXPECT_FALSE(add_pieces(one, shape, {{0, 0, 0}, {0, 1, 1}, {1, 2, 2}}, pieces));
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].offset, 6u + 16 * 2);
  EXPECT_EQ(pieces[0].slice.global_offset, (Shape{5, 0, 0}));
  EXPECT_EQ(pieces[0].slice.shape, (Shape{1, 2, 4}));
}

/// A Mamba layer with 2 z, 2 x, 3 B, 3 C and 1 dt, whose convolution covers x, B and C.
DeclaredTensors mamba_layer() {
  const ShardBlock b{3, /*splittable=*/false};
  return {.shardings = {{"decoder.layers.0.mixer.in_proj.weight",
                         Sharding::split({11, 4}, 0, {{2}, {2}, b, b, {1}})},
                        {"decoder.layers.0.mixer.conv1d.weight",
                         Sharding::split({8, 1, 4}, 0, {{2}, b, b})},
                        {"decoder.layers.0.mixer.in_proj.layer_norm_weight", {{4}}},
                        {"decoder.layers.0.mixer.norm.weight", {{2}}},
                        {"decoder.final_norm.weight", {{4}}}},
          .states = {}};
}

TEST(RecurrentLayers, AreSavedInParts) {
  const DeclaredTensors declared = mamba_layer();
  const std::string name = "decoder.layers.0.mixer.in_proj.weight";
  std::vector<std::string> parts;
  for (const SavedRows& rows : rows_saved_apart(name, declared.shardings.at(name)))
    parts.push_back(std::string(rows.name) + " " + std::to_string(rows.first) + " " +
                    std::to_string(rows.count));
  EXPECT_EQ(parts, (std::vector<std::string>{"z 0 2", "x 2 2", "B 4 3", "C 7 3", "dt 10 1"}));
  EXPECT_TRUE(rows_saved_apart("decoder.layers.0.mixer.norm.weight", {{2}}).empty());
  // A gated delta net: queries, keys, values, z, beta, alpha.
  const ShardBlock q{2, /*splittable=*/false};
  const auto of_delta_net = rows_saved_apart("decoder.layers.0.self_attention.conv1d.weight",
                                             Sharding::split({8, 1, 4}, 0, {q, q, {4}}));
  ASSERT_EQ(of_delta_net.size(), 3u);
  EXPECT_EQ(of_delta_net[2].name, "value");
  EXPECT_EQ(of_delta_net[2].first, 4);
}

TEST(RecurrentLayers, AreJoinedFromParts) {
  ForeignTensors theirs;
  const std::string layer = "decoder.layers.0.mixer.";
  const auto add = [&](const std::string& name, const Shape& shape) {
    const TensorSlice whole{
        .global_offset = Shape(shape.size(), 0), .local_offset = {}, .shape = shape};
    theirs[name] = {.type = SafetensorsDtype::F32,
                    .shape = shape,
                    .pieces = {{.file = name, .slice = whole, .offset = 0}}};
  };
  for (const auto& [part, rows] :
       std::map<std::string, std::int64_t>{{"z", 2}, {"x", 2}, {"B", 3}, {"C", 3}, {"dt", 1}})
    add(layer + "in_proj.weight." + part, {rows, 4});
  add("optimizer.state.exp_avg." + layer + "conv1d.weight.C", {3, 1, 4});
  add("decoder.layers.0.norm.weight", {4});
  add("decoder.final_layernorm.weight", {4});
  Manifest manifest;
  manifest.optimizer.emplace();
  add_torch_dist_tensors(theirs, mamba_layer(), "f", manifest);
  const ManifestTensor& in_proj = manifest.tensors.at(layer + "in_proj.weight");
  EXPECT_EQ(in_proj.shape, (Shape{11, 4}));
  std::map<std::string, std::int64_t> first;
  for (const Piece& piece : in_proj.pieces) first[piece.file] = piece.slice.global_offset[0];
  EXPECT_EQ(first.at(layer + "in_proj.weight.B"), 4);
  EXPECT_EQ(first.at(layer + "in_proj.weight.dt"), 10);
  EXPECT_EQ(manifest.tensors.at("exp_avg." + layer + "conv1d.weight")
                .pieces.front()
                .slice.global_offset.front(),
            5);
  EXPECT_TRUE(manifest.tensors.contains(layer + "in_proj.layer_norm_weight"));
  EXPECT_TRUE(manifest.tensors.contains("decoder.final_norm.weight"));
  add(layer + "in_proj.weight.B", {2, 4});
  expect_user_error([&] { add_torch_dist_tensors(theirs, mamba_layer(), "f", manifest); },
                    {"in_proj.weight.B", "expected [3, 4]"});
}

TEST(FsdpDtensor, TakesNamesApart) {
  const std::string layer = "decoder.layers.0.", experts = layer + "mlp.experts.linear_fc1.weight";
  const std::map<std::string, DtensorPart> parts{
      {"model.module." + layer + "mlp.linear_fc2.weight", {layer + "mlp.linear_fc2.weight"}},
      {"model1.module.module.output_layer.weight", {"output_layer.weight"}},
      {"model.decoder.final_layernorm.bias", {"decoder.final_layernorm.bias"}},
      {"model.module." + layer + "mlp.linear_fc1.weight_v",
       {.name = layer + "mlp.linear_fc1.weight", .half = 1}},
      {"model.module." + experts + "12_w", {.name = experts, .expert = 12, .half = 0}},
      {"model.module." + layer + "mlp.experts.local_experts.3.linear_fc2.bias",
       {.name = layer + "mlp.experts.linear_fc2.bias", .expert = 3}},
      {"model.module." + layer + "mlp.shared_experts.linear_fc1.weight_w",
       {.name = layer + "mlp.shared_experts.linear_fc1.weight", .half = 0}},
      {"optimizer.state.module.module." + experts + "1_v.exp_avg_sq",
       {.name = "optimizer.state.exp_avg_sq." + experts, .expert = 1, .half = 1}},
      {"optimizer.1.state.module.module.output_layer.weight.exp_avg",
       {"optimizer.state.exp_avg.output_layer.weight"}},
      {"optimizer.state.module.output_layer.weight.master_param",
       {"optimizer.state.param.output_layer.weight"}}};
  for (const auto& [name, part] : parts) EXPECT_EQ(dtensor_part(name), part) << name;
  for (const char* name :
       {"rng_state.(0, 0).0.torch_rng_state", "optimizer.state.module.output_layer.weight.step",
        "optimizer.param_to_group_meta.module.output_layer.weight.lr", "models.weight",
        "model.module.decoder.layers.0.mlp.linear_fc1._extra_state"})
    EXPECT_EQ(dtensor_part(name), std::nullopt) << name;
  // Numbers and names that only a damaged index has.
  const std::string number(30, '9');
  EXPECT_EQ(dtensor_part("model.module." + experts + number), std::nullopt);
  EXPECT_EQ(dtensor_part("model." + std::string(1 << 20, 'x')), std::nullopt);
}

TEST(FsdpDtensor, JoinsHalvesAndExperts) {
  ForeignTensors tensors;
  const auto add = [&](std::int64_t expert, std::int64_t half, std::int64_t row) {
    ManifestTensor tensor{.shape = {3, 4}};
    tensor.pieces = {{.file = "a", .slice = slice_at({row, 0}, {2, 4}), .offset = 8}};
    add_dtensor_part({.name = "w", .expert = expert, .half = half}, tensor, "w", tensors);
  };
  add(1, 0, 0);
  add(0, 1, 1);
  const ManifestTensor& whole = tensors.at("w");
  EXPECT_EQ(whole.shape, (Shape{2, 6, 4}));
  ASSERT_EQ(whole.pieces.size(), 2u);
  EXPECT_EQ(whole.pieces[0].slice, slice_at({1, 0, 0}, {1, 2, 4}));
  EXPECT_EQ(whole.pieces[1].slice, slice_at({0, 4, 0}, {1, 2, 4}));
  expect_user_error(
      [&] {
        add_dtensor_part({.name = "w", .expert = 0, .half = 0},
                         {.type = SafetensorsDtype::BF16, .shape = {3, 4}}, "tensor x", tensors);
      },
      {"tensor x", "its type differs"});
}

}  // namespace
}  // namespace megatron
