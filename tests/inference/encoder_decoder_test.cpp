// Generation with an encoder and a decoder: a text goes on as by whole passes, whatever shares its
// passes and its blocks.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "inference/small_model.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/engine_options.h"
#include "megatron/inference/scorer.h"
#include "megatron/models/model_family.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank_threads.h"
#include "support/inference_passes.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kStart = 5;  ///< begins the decoder's texts

/// An encoder of one layer and a decoder of two.
struct SmallT5 {
  explicit SmallT5(const std::string& positions = "relative", c10::ScalarType type = c10::kBFloat16)
      : config(small(positions)),
        model(find_model_family("t5").make(config, Rank{}, {})),
        weights(declared_parameters(*model), {.dtype = type, .with_gradients = false}) {
    weights.initialize(7);
  }
  static TransformerConfig small(const std::string& positions) {
    TransformerConfig config;
    config.num_layers = 3;
    config.decoder_num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.vocab_size = SmallModel::kVocabSize;
    config.max_position_embeddings = 320;
    config.init_method_std = 0.3;
    config.position_embedding_type = positions == "learned" ? PositionEmbedding::learned_absolute
                                     : positions == "rope"  ? PositionEmbedding::rope
                                                            : PositionEmbedding::relative;
    config.relative_attention_num_buckets = 12;
    config.relative_attention_max_distance = 40;
    config.relative_attention_per_layer = positions == "per layer";
    config.softmax_scale = 1;
    resolve(config);
    return config;
  }
  /// Returns the logits [tokens, vocabulary] of a whole pass.
  at::Tensor whole_logits(const Ids& encoded, const Ids& decoded) {
    const auto row = [](const Ids& ids) { return at::tensor(ids).unsqueeze(0); };
    Microbatch microbatch{.tensors = {{"text_enc", row(encoded)}, {"text_dec", row(decoded)}},
                          .sample_ordinals = {}};
    microbatch.tensors["enc_mask"] = at::ones_like(microbatch.at("text_enc"));
    microbatch.tensors["dec_mask"] = at::ones_like(microbatch.at("text_dec"));
    return model->infer({.microbatch = microbatch, .wants = Wants::logits})[0];
  }

  const TransformerConfig config;
  std::unique_ptr<Model> model;
  ParamStore weights;
};

using Variant = std::tuple<const char*, c10::ScalarType>;
class EncoderDecoder : public testing::TestWithParam<Variant> {};

// Two texts of different lengths, of which the decoder computes several tokens, then one by one,
// across the border of a block.
TEST_P(EncoderDecoder, DecodesTheLogitsOfWholePasses) {
  const auto [positions, type] = GetParam();
  SmallT5 t5(positions, type);
  std::mt19937 random(3);
  const std::vector<Ids> encoded{random_ids(random, 7), random_ids(random, 150)},
      decoded{random_ids(random, 133), random_ids(random, 133)};
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < 2; ++i) expected.push_back(t5.whole_logits(encoded[i], decoded[i]));
  OwnedCaches cached(2);
  const Microbatch texts = microbatch_of({encoded[0], encoded[1]});
  std::vector<std::size_t> ends{3, 100}, begins{0, 0};
  while (ends.back() < decoded[0].size()) ends.push_back(ends.back() + 1);
  for (const std::size_t end : ends) {
    std::vector<std::span<const std::int64_t>> parts;
    for (std::size_t i = 0; i < 2; ++i)  // the second text is two tokens behind
      parts.push_back(std::span(decoded[i]).subspan(begins[i], end - 2 * i - begins[i]));
    const Microbatch microbatch = microbatch_of(parts);
    const at::Tensor logits = t5.model->infer({.microbatch = microbatch,
                                               .wants = Wants::last_logits,
                                               .caches = &cached.caches,
                                               .encoder = begins[0] == 0 ? &texts : nullptr});
    for (std::size_t i = 0; i < 2; ++i) {
      begins[i] = end - 2 * i;
      const at::Tensor whole = expected[i][static_cast<std::int64_t>(begins[i]) - 1];
      EXPECT_LT((logits[static_cast<std::int64_t>(i)] - whole).abs().max().item<double>(), 2e-4)
          << "text " << i << ", " << begins[i] << " tokens";
    }
  }
  EXPECT_EQ(cached.sequences[1].length, 131);
  EXPECT_EQ(cached.sequences[1].num_encoded, 150);
}

INSTANTIATE_TEST_SUITE_P(Positions, EncoderDecoder,
                         testing::Values(Variant{"relative", c10::kFloat},
                                         Variant{"relative", c10::kDouble},
                                         Variant{"per layer", c10::kFloat},
                                         Variant{"learned", c10::kFloat},
                                         Variant{"rope", c10::kFloat}));

std::map<SequenceId, std::vector<Ids>> run(Engine& engine) {
  std::map<SequenceId, std::vector<Generation>> texts;
  while (!engine.is_idle()) {
    for (Update& update : engine.step()) {
      if (update.error) std::rethrow_exception(update.error);
      take_finished(update, texts[update.request]);
    }
  }
  EXPECT_EQ(engine.scheduler().pool().num_available(), engine.scheduler().pool().num_blocks());
  std::map<SequenceId, std::vector<Ids>> ids;
  for (const auto& [request, of_request] : texts)
    for (const Generation& text : of_request) ids[request].push_back(text.ids);
  return ids;
}

// Texts wait, are preempted and computed again or swapped, and share passes.
TEST(EncoderDecoderEngine, ATextDoesNotDependOnWhatSharesItsPasses) {
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  SmallT5 t5;
  const ModelRunner runner(*t5.model);
  std::mt19937 random(4);
  std::vector<TextRequest> requests;
  for (const std::int64_t length : {1, 30, 300, 128, 9, 77}) {
    const auto number = static_cast<std::uint64_t>(requests.size());
    requests.push_back({.prompt = random_ids(random, length),
                        .params = {.temperature = number % 2 == 0 ? 0.0 : 1.0,
                                   .max_new_tokens = length == 30 ? 10 : 140},
                        .site = {.prompt = number}});
  }
  std::map<SequenceId, std::vector<Ids>> alone;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Engine engine(runner, {.decoder_start = kStart});
    engine.add_request(requests[i]);
    alone[static_cast<SequenceId>(i)] = run(engine).at(0);
  }
  EXPECT_NE(alone[0], alone[2]) << "nothing depends on the encoder's text";
  for (const std::int64_t num_blocks : {100, 10, 9, 8})
    for (const std::int64_t num_swap_blocks : {0, 20}) {
      Engine engine(runner,
                    {.scheduler = {.num_blocks = num_blocks, .num_swap_blocks = num_swap_blocks},
                     .decoder_start = kStart});
      for (const TextRequest& request : requests) engine.add_request(request);
      EXPECT_EQ(run(engine), alone) << num_blocks << " blocks, " << num_swap_blocks << " to swap";
    }
}

// Forks share the encoder's keys and values with the block that they begin to write.
TEST(EncoderDecoderEngine, SamplesForkFromOnePass) {
  if (!uses_own_gemm(c10::kBFloat16))
    GTEST_SKIP() << "a row of the library's GEMM may depend on others";
  SmallT5 t5;
  const ModelRunner runner(*t5.model);
  std::mt19937 random(5);
  TextRequest request{.prompt = random_ids(random, 200),
                      .params = {.temperature = 1, .max_new_tokens = 135, .n = 3},
                      .site = {.prompt = 4}};
  Engine together(runner, {.decoder_start = kStart});
  together.add_request(request);
  const std::vector<Ids> samples = run(together).at(0);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_NE(samples[0], samples[1]);
  request.params.n = 1;
  for (std::uint64_t i = 0; i < 3; ++i) {
    request.site.sample = i;
    Engine engine(runner, {.decoder_start = kStart});
    engine.add_request(request);
    EXPECT_EQ(run(engine).at(0).front(), samples[i]) << "sample " << i;
  }
}

// Each rank of tp keeps the keys of its heads.
TEST(EncoderDecoderEngine, TwoRanksSayWhatOneSays) {
  std::mt19937 random(6);
  std::vector<TextRequest> requests;
  for (const std::int64_t length : {7, 150})
    requests.push_back(
        {.prompt = random_ids(random, length), .params = {.temperature = 0, .max_new_tokens = 20}});
  const auto say = [&](const ModelRunner& runner) {
    Engine engine(runner, {.decoder_start = kStart});
    for (const TextRequest& request : requests) engine.add_request(request);
    return run(engine);
  };
  SmallT5 one("relative", c10::kFloat);
  const auto expected = say(*one.model);
  ParallelConfig parallel;
  parallel.tensor_model_parallel_size = 2;
  std::vector<std::map<SequenceId, std::vector<Ids>>> said(2);
  run_rank_threads(2, [&](Communicators& communicators) {
    const Rank rank =
        make_rank(Mesh(mesh_sizes(parallel), communicators.world_size()), communicators);
    const auto model = find_model_family("t5").make(one.config, rank, {});
    ParamStore weights(declared_parameters(*model), {.with_gradients = false, .model = rank.model});
    weights.initialize(7);
    said[static_cast<std::size_t>(rank.index)] = say(*model);
  });
  EXPECT_EQ(said[0], expected);
  EXPECT_EQ(said[1], expected);
}

// The best of so many beams that none is lost is the likeliest text.
TEST(EncoderDecoderEngine, BeamsFindTheLikeliestText) {
  SmallT5 t5("relative", c10::kFloat);
  const ModelRunner runner(*t5.model);
  const Ids encoded{9, 4, 33, 2};
  Engine engine(runner, {.decoder_start = kStart});
  engine.add_request(
      {.prompt = encoded, .params = {.max_new_tokens = 2, .num_beams = SmallModel::kVocabSize}});
  double most = -1e9;
  Ids best;
  const at::Tensor firsts = t5.whole_logits(encoded, {kStart})[0].to(at::kDouble).log_softmax(0);
  for (std::int64_t first = 0; first < SmallModel::kVocabSize; ++first) {
    const at::Tensor seconds =
        t5.whole_logits(encoded, {kStart, first})[1].to(at::kDouble).log_softmax(0);
    const double sum = (firsts[first] + seconds.max()).item<double>();
    if (sum <= most) continue;
    most = sum;
    best = {first, seconds.argmax().item<std::int64_t>()};
  }
  EXPECT_EQ(run(engine).at(0).front(), best);
}

TEST(EncoderDecoderEngine, ScoresAnAnswerByTheLogitsOfAWholePass) {
  SmallT5 t5("relative", c10::kFloat);
  const ModelRunner runner(*t5.model);
  std::mt19937 random(7);
  const Ids encoded = random_ids(random, 150), decoded = random_ids(random, 9);
  const at::Tensor expected = t5.whole_logits(encoded, decoded).to(at::kDouble).log_softmax(1);
  const Score score = score_tokens(runner, decoded, "ids", encoded);
  ASSERT_EQ(score.logprobs.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(score.logprobs[i],
                expected[static_cast<std::int64_t>(i)][decoded[i + 1]].item<double>(), 2e-4);
  EXPECT_GT(std::abs(score_tokens(runner, decoded, "ids", Ids{3}).loss - score.loss), 1e-3);
}

TEST(EncoderDecoderEngine, CountsTheKeysOfBothAttentionsInItsBlocks) {
  SmallT5 t5("relative", c10::kFloat);
  TransformerConfig config;
  config.num_layers = 4;
  config.hidden_size = 32;
  config.num_attention_heads = 4;
  config.vocab_size = SmallModel::kVocabSize;
  config.max_position_embeddings = 8;
  resolve(config);
  const auto gpt = make_gpt_model(config, Rank{});
  ParamStore weights(declared_parameters(*gpt), {.with_gradients = false});
  weights.initialize(1);
  EXPECT_EQ(cache_block_bytes(ModelRunner(*t5.model)), cache_block_bytes(ModelRunner(*gpt)));
}

TEST(EncoderDecoderEngine, RefusesWhatItCannotServe) {
  SmallT5 t5;
  const ModelRunner runner(*t5.model);
  EXPECT_THAT(message_of([&] { Engine(runner, {}).add_request({.prompt = {1}}); }),
              HasSubstr("it is not known what the decoder begins with"));
  EXPECT_THAT(message_of([&] {
                score_tokens(runner, Ids{1, 2}, "line 7", Ids{61});
              }),
              HasSubstr("line 7: encoder: ids[0]: 61"));
  SpeculationOptions drafts;
  drafts.config.num_speculative_tokens = 2;
  drafts.config.speculative_method = SpeculativeMethod::ngram;
  EXPECT_THAT(message_of([&] { Engine(runner, {.speculation = drafts, .decoder_start = kStart}); }),
              HasSubstr("nothing is proposed to or by a model with an encoder"));
  Engine engine(runner, {.decoder_start = kStart});
  EXPECT_THAT(message_of([&] { engine.add_request({.prompt = {1}, .pooling = Pooling::mean}); }),
              HasSubstr("makes no embeddings"));
  EXPECT_THAT(message_of([&] { engine.add_request({.prompt = {61}}); }), HasSubstr("ids[0]"));
  EXPECT_THAT(message_of([&] { engine.add_request({.prompt = Ids(9000, 1)}); }),
              HasSubstr("the encoder computes a text whole"));
}

}  // namespace
}  // namespace megatron
