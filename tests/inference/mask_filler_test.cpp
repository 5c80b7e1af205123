// Encoders: masks are filled from both sides, embeddings in shared passes are those of whole texts,
// and nothing is generated.
#include "megatron/inference/mask_filler.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "inference/small_model.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/inference/engine.h"
#include "megatron/models/model_family.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct SmallEncoder {
  SmallEncoder()
      : model(find_model_family("bert").make(config, Rank{}, {})),
        weights(declared_parameters(*model), {.with_gradients = false}) {
    weights.initialize(7);
  }
  static TransformerConfig small() {
    TransformerConfig config;
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.vocab_size = SmallModel::kVocabSize;
    config.max_position_embeddings = 300;
    config.init_method_std = 0.3;
    config.embedding_norm = true;
    config.norm_placement = NormPlacement::post;
    config.bert_binary_head = false;
    resolve(config);
    return config;
  }
  const TransformerConfig config = small();
  std::unique_ptr<Model> model;
  ParamStore weights;
};

TEST(MaskFiller, ReadsBothSidesOfAMask) {
  SmallEncoder encoder;
  const ModelRunner runner(*encoder.model);
  MaskedText text{.ids = {2, 9, 4, 11, 12, 3}, .masks = {2}};
  const auto all = fill_masks(runner, text, 1000);
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(std::ssize(all[0]), SmallModel::kVocabSize);
  double sum = 0;
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    sum += all[0][i].probability;
    EXPECT_LE(all[0][i].probability, all[0][i > 0 ? i - 1 : 0].probability);
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(fill_masks(runner, text, 2)[0].size(), 2u);
  for (const std::size_t other : {1u, 4u}) {
    MaskedText changed = text;
    changed.ids[other] = 20;
    EXPECT_NE(fill_masks(runner, changed, 1)[0][0].probability, all[0][0].probability) << other;
  }
}

TEST(MaskFiller, NeedsAnEncoder) {
  SmallModel decoder;
  EXPECT_THAT(message_of([&] {
                fill_masks(ModelRunner(*decoder.model), {{1, 2}, {1}}, 1);
              }),
              HasSubstr("the model is no masked language model: it predicts the next token"));
}

TEST(MaskFiller, FindsMasksBetweenTheTokensAroundAText) {
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_type = "BertWordPieceLowerCase";
  config.vocab_file = folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n");
  const auto tokenizer = make_tokenizer(config);
  const MaskedText text = masked_text(*tokenizer, "The [MASK] cat [MASK]");
  EXPECT_THAT(text.ids, ElementsAre(2, 5, 4, 6, 4, 3));
  EXPECT_THAT(text.masks, ElementsAre(2, 4));
  EXPECT_THAT(message_of([&] { masked_text(*tokenizer, "the cat"); }),
              HasSubstr("has no mask\n  fix: write [MASK]"));
}

/// Texts of one pass and of several, with more than one block of the cache.
TEST(Encoders, EmbeddingsAreThoseOfWholeTexts) {
  SmallEncoder encoder;
  const ModelRunner runner(*encoder.model);
  std::mt19937 random(3);
  std::vector<std::vector<std::int64_t>> prompts;
  for (const std::int64_t length : {7, 150, 40, 290}) prompts.push_back(random_ids(random, length));
  Engine engine(runner, {.scheduler = {.max_running = 4, .max_step_tokens = 50}});
  for (std::size_t i = 0; i < prompts.size(); ++i)
    engine.add_request({.prompt = prompts[i], .pooling = Pooling::mean, .id = i});
  std::size_t num_compared = 0;
  while (!engine.is_idle()) {
    for (const Update& update : engine.step()) {
      if (update.error) std::rethrow_exception(update.error);
      const Microbatch alone =
          microbatch_of({prompts.at(static_cast<std::size_t>(update.request))});
      const at::Tensor mean =
          runner.infer({.microbatch = alone, .wants = Wants::hidden})[0].mean(0);
      const std::vector<float>& embedding = update.finished.value().embedding;
      ASSERT_EQ(std::ssize(embedding), mean.numel());
      for (std::int64_t k = 0; k < mean.numel(); ++k)
        EXPECT_NEAR(embedding[static_cast<std::size_t>(k)], mean[k].item<float>(), 2e-5);
      ++num_compared;
    }
  }
  EXPECT_EQ(num_compared, prompts.size());
}

TEST(Encoders, GenerateAndScoreNothing) {
  SmallEncoder encoder;
  const ModelRunner runner(*encoder.model);
  Engine engine(runner, {});
  EXPECT_THAT(message_of([&] {
                engine.add_request({.prompt = {1, 2}});
              }),
              HasSubstr("the model reads whole texts, so it cannot continue or score them"));
}

}  // namespace
}  // namespace megatron
