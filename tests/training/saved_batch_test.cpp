// Checks that a saved batch is loaded unchanged, and that the error for a damaged file names the
// problem.
#include "megatron/training/resilience/diagnosis/saved_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/config/resolve.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

SavedBatch small_batch() {
  SavedBatch batch{.iteration = 7,
                   .index = 1,
                   .num_microbatches = 4,
                   .gradient_scale = 0.125,
                   .seed = 99,
                   .checkpoint_root = "/runs/x",
                   .checkpoint_iteration = 6,
                   .cause = "why"};
  batch.model.num_layers = 1;
  batch.model.hidden_size = 8;
  batch.model.num_attention_heads = 2;
  batch.model.max_position_embeddings = 4;
  batch.model.vocab_size = 10;
  resolve(batch.model);
  auto& tensors = batch.microbatch.tensors;
  tensors["tokens"] = at::arange(8).view({2, 4});
  tensors["labels"] = at::arange(8).view({2, 4}) + 1;
  tensors["position_ids"] = at::arange(4).unsqueeze(0);
  tensors["loss_mask"] = at::ones({2, 4});
  batch.microbatch.sample_ordinals = at::tensor({40, 41}, at::kLong);
  return batch;
}

class SavedBatchTest : public testing::Test {
 protected:
  /// Returns the message of loading a batch that `spoil` has changed.
  std::string message(const std::function<void(SavedBatch&)>& spoil) {
    SavedBatch batch = small_batch();
    spoil(batch);
    save_batch(path_, batch);
    return message_of([&] { load_batch(path_); });
  }
  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "batch.safetensors";
};

TEST_F(SavedBatchTest, ComesBackAsItWas) {
  const SavedBatch batch = small_batch();
  save_batch(path_, batch);
  const SavedBatch back = load_batch(path_);
  EXPECT_EQ(back.iteration, 7);
  EXPECT_EQ(back.gradient_scale, 0.125);
  EXPECT_EQ(back.seed, 99u);
  EXPECT_EQ(back.checkpoint_root, "/runs/x");
  EXPECT_EQ(back.cause, "why");
  EXPECT_EQ(back.model.hidden_size, 8);
  for (const auto& [name, tensor] : batch.microbatch.tensors)
    EXPECT_TRUE(back.microbatch.at(name).equal(tensor)) << name;
  EXPECT_TRUE(back.microbatch.sample_ordinals.equal(batch.microbatch.sample_ordinals));
  EXPECT_EQ(saved_batch_path("d", batch), "d/batch_iter_0000007_microbatch_2.safetensors");
}

TEST_F(SavedBatchTest, KeepsFieldsAndReadsFilesWithoutThem) {
  SavedBatch batch = small_batch();
  batch.family = "new";
  batch.microbatch.per_position = {"tokens", "types"};
  batch.microbatch.tensors["types"] = at::ones({2, 4}, at::kByte);
  batch.microbatch.tensors["kind"] = at::ones({2}, at::kInt);
  save_batch(path_, batch);
  const SavedBatch back = load_batch(path_);
  EXPECT_EQ(back.family, "new");
  EXPECT_EQ(back.microbatch.per_position, batch.microbatch.per_position);
  for (const char* name : {"types", "kind"})
    EXPECT_TRUE(back.microbatch.at(name).equal(batch.microbatch.at(name))) << name;

  std::string bytes = read_file(path_);  // older files have other names
  for (const char* name : {"family", "per_position"}) bytes[bytes.find(name)] = '_';
  folder_.write("batch.safetensors", bytes);
  const SavedBatch old = load_batch(path_);
  EXPECT_EQ(old.family, "gpt");
  EXPECT_EQ(old.microbatch.per_position, Microbatch{}.per_position);
}

TEST_F(SavedBatchTest, KeepsPackedSequences) {
  SavedBatch batch = small_batch();
  const auto pack = [](SavedBatch& b) {
    for (auto& [name, tensor] : b.microbatch.tensors)
      tensor = name == "position_ids" ? at::tensor({0, 1, 2, 0, 0, 1, 2, 3}, at::kLong).unsqueeze(0)
                                      : tensor.view({1, 8});
    b.microbatch.sample_ordinals = at::tensor({40, 41, 42}, at::kLong);
    b.microbatch.packed = {.cu_seqlens = {0, 3, 4, 8}, .num_samples = 2, .padded_length = 4};
    b.microbatch.lengths = {3, 1, 2};
  };
  pack(batch);
  save_batch(path_, batch);
  const SavedBatch back = load_batch(path_);
  ASSERT_TRUE(back.microbatch.packed.has_value());
  EXPECT_EQ(back.microbatch.packed->cu_seqlens, batch.microbatch.packed->cu_seqlens);
  EXPECT_EQ(back.microbatch.packed->num_samples, 2);
  EXPECT_EQ(back.microbatch.packed->padded_length, 4);
  EXPECT_EQ(back.microbatch.lengths, batch.microbatch.lengths);
  for (const auto& wrong : {std::pair(4, 4), std::pair(2, 3)})
    EXPECT_THAT(message([&](SavedBatch& b) {
                  pack(b);
                  b.microbatch.packed->num_samples = wrong.first;
                  b.microbatch.packed->padded_length = wrong.second;
                }),
                testing::HasSubstr("do not fit 'cu_seqlens'"));
  EXPECT_FALSE(back.microbatch.has("cu_seqlens"));
  for (const std::vector<std::int64_t>& wrong :
       std::vector<std::vector<std::int64_t>>{{0, 3, 8, 4}, {0, 3, 4, 7}, {1, 3, 4, 8}, {8}})
    EXPECT_THAT(message([&](SavedBatch& b) {
                  pack(b);
                  b.microbatch.packed->cu_seqlens = wrong;
                }),
                testing::HasSubstr("'cu_seqlens' must rise from 0 to the number of tokens"));
  EXPECT_THAT(message([&](SavedBatch& b) {
                pack(b);
                b.microbatch.sample_ordinals = at::tensor({40, 41}, at::kLong);
              }),
              testing::HasSubstr("one integer per sample or packed sequence"));
  EXPECT_THAT(message([&](SavedBatch& b) {
                pack(b);
                b.microbatch.lengths.pop_back();
              }),
              testing::HasSubstr("one integer per sample or packed sequence"));
}

TEST_F(SavedBatchTest, BrokenFilesAreNamed) {
  using testing::HasSubstr;
  EXPECT_THAT(message([](SavedBatch& b) { b.microbatch.tensors.erase("labels"); }),
              HasSubstr("has no tensor 'labels'"));
  EXPECT_THAT(message([](SavedBatch& b) { b.microbatch.tensors["tokens"][1][3] = 10; }),
              HasSubstr("'tokens' holds id 10, outside the 10 of the model"));
  EXPECT_THAT(message([](SavedBatch& b) { b.microbatch.tensors["labels"][0][0] = -1; }),
              HasSubstr("'labels' holds id -1"));
  EXPECT_THAT(message([](SavedBatch& b) {
                b.microbatch.tensors["loss_mask"] = at::ones({2, 3});
              }),
              HasSubstr("'loss_mask' is not of the shape"));
  EXPECT_THAT(message([](SavedBatch& b) {
                b.microbatch.tensors["tokens"] = at::ones({2, 4});
              }),
              HasSubstr("'tokens' has the wrong type"));
  EXPECT_THAT(message([](SavedBatch& b) { b.microbatch.tensors["position_ids"][0][3] = 4; }),
              HasSubstr("'position_ids' holds id 4, outside the 4"));
  EXPECT_THAT(
      message([](SavedBatch& b) { b.microbatch.sample_ordinals = at::ones({1}, at::kLong); }),
      HasSubstr("'sample_ordinals'"));
  EXPECT_THAT(message([](SavedBatch& b) { b.model.hidden_size = 0; }), HasSubstr("hidden_size"));
}

}  // namespace
}  // namespace megatron
