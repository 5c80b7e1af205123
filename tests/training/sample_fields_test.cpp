// Fields that a dataset adds reach a model through loader, packing and context parallelism, in
// their types, beside the tokens that they belong to.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "megatron/config/data_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/models/gpt_model.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/linear.h"
#include "megatron/training/feeding/dataset_source.h"
#include "support/data_parallel_ranks.h"
#include "support/global_tensor.h"
#include "support/gradient_check.h"
#include "support/temporary_folder.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

constexpr std::int64_t kLength = 16;

/// Token p of sample i is 100·i + p. Adds a pair (token, −token) for each position, and for each
/// sample the number 7·(i + 1) and a picture of i + 1. Documents begin at 0 and 6.
class FieldsDataset : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  const SampleFields& fields() const override { return fields_; }
  Sample sample(std::int64_t index) const override {
    std::vector<std::int64_t> tokens(kLength), positions(kLength);
    std::vector<float> pairs;
    for (std::int64_t p = 0; p < kLength; ++p) {
      const std::int64_t token = 100 * index + p;
      tokens[static_cast<std::size_t>(p)] = token;
      positions[static_cast<std::size_t>(p)] = p < 6 ? p : p - 6;
      pairs.insert(pairs.end(), {static_cast<float>(token), static_cast<float>(-token)});
    }
    return {{fields_, tokens, tokens, positions, std::vector<float>(kLength, 1.0f), pairs,
             std::vector<std::int32_t>{static_cast<std::int32_t>(7 * (index + 1))},
             std::vector<std::uint8_t>(6, static_cast<std::uint8_t>(index + 1))},
            {0, 6},
            {}};
  }
  std::string describe(std::int64_t index) const override { return std::to_string(index); }
  std::vector<CorpusShare> shares(std::int64_t) const override { return {}; }

 private:
  static SampleFields all_fields() {
    std::vector<SampleField> fields = causal_fields(kLength);
    fields.push_back({.name = "pairs", .type = std::vector<float>(), .shape = {kLength, 2}});
    fields.push_back({.name = "kind", .type = std::vector<std::int32_t>(), .per_position = false});
    fields.push_back({.name = "picture",
                      .type = std::vector<std::uint8_t>(),
                      .shape = {2, 3},
                      .per_position = false});
    return std::make_shared<const std::vector<SampleField>>(std::move(fields));
  }
  SampleFields fields_ = all_fields();
};

/// A model that reads the added fields: Σ pairs over the counted positions of a rank.
double model(const Microbatch& microbatch) {
  const at::Tensor &tokens = microbatch.at("tokens"), &pairs = microbatch.at("pairs"),
                   &kind = microbatch.at("kind"), &picture = microbatch.at("picture");
  EXPECT_EQ(pairs.scalar_type(), at::kFloat);
  EXPECT_TRUE(pairs.select(2, 0).equal(tokens.to(at::kFloat)));
  EXPECT_TRUE(pairs.select(2, 1).equal(-tokens.to(at::kFloat)));
  EXPECT_EQ(kind.scalar_type(), at::kInt);
  EXPECT_EQ(picture.scalar_type(), at::kByte);
  const std::int64_t sequences = microbatch.sample_ordinals.numel();
  EXPECT_EQ(kind.sizes(), at::IntArrayRef({sequences}));
  EXPECT_EQ(picture.sizes(), at::IntArrayRef({sequences, 2, 3}));
  for (std::int64_t i = 0; i < sequences; ++i) {
    const std::int64_t sample =
        sample_of_ordinal(microbatch.sample_ordinals[i].item<std::int64_t>());
    const std::int64_t found = kind[i].item<std::int64_t>();
    if (found == 0 && microbatch.hybrid() != nullptr) continue;  // padding
    EXPECT_EQ(found, 7 * (sample + 1));
    EXPECT_EQ(picture[i][1][2].item<std::int64_t>(), sample + 1);
  }
  return (pairs.select(2, 0) * microbatch.at("loss_mask")).sum().item<double>();
}

/// Σ tokens of samples 0 and 1.
constexpr double kSum = 100 * kLength + kLength * (kLength - 1);

TEST(SampleFields, ReachAModelThroughLoaderPackingAndContextSlices) {
  for (const bool packs : {false, true}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      double sum = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto source = make_dataset_source(std::make_shared<FieldsDataset>(),
                                                {.loader = {.sampler = {.micro_batch_size = 2}},
                                                 .context_rank = rank,
                                                 .context_ranks = ranks,
                                                 .packs_documents = packs});
        const Microbatch microbatch = source->next();
        EXPECT_EQ(microbatch.num_samples(), 2);
        EXPECT_EQ(microbatch.at("pairs").size(1), (packs ? 2 : 1) * kLength / ranks);
        sum += model(microbatch);
      }
      EXPECT_EQ(sum, kSum) << ranks << " ranks" << (packs ? ", packed" : "");
    }
  }
}

/// Adds a projection of "pairs" to GPT's embeddings.
class PairsInput : public LanguageModelEmbedding {
 public:
  explicit PairsInput(const PartArguments& arguments)
      : LanguageModelEmbedding(arguments.parent, arguments.config, arguments.rank,
                               word_embedding_spec(arguments.config, 8)),
        weight_(declare("pairs",
                        {.sharding = Sharding::replicated({arguments.config.hidden_size, 2}),
                         .init = Init::normal(0.1),
                         .tags = {}},
                        arguments.rank.tp)) {}
  at::Tensor forward(const Microbatch& microbatch, const at::Tensor& position_ids,
                     const ForwardContext& context) const override {
    const at::Tensor pairs_sb2 = microbatch.at("pairs").transpose(0, 1) * 0.01;
    return LanguageModelEmbedding::forward(microbatch, position_ids, context) +
           linear(pairs_sb2.to(weight_.dtype()).contiguous(), weight_, nullptr);
  }

 private:
  Parameter& weight_;
};

TransformerConfig gpt_of_fields() {
  TransformerConfig config = tiny_gpt();
  config.max_position_embeddings = kLength;
  config.vocab_size = 400;
  config.untie_embeddings_and_output_weights = true;
  return config;
}

struct FieldsOutcome {
  at::Tensor loss = at::zeros({}, at::kDouble);
  std::map<std::string, at::Tensor> gradients = {};
};

/// Trains a GPT with PairsInput on samples 0 and 1, whose positions `ranks` ranks divide. One rank
/// compares the gradient of the projection with central differences.
FieldsOutcome train_on_fields(std::int64_t ranks, bool packs) {
  const TransformerConfig config = gpt_of_fields();
  FieldsOutcome outcome;
  GlobalTensors gradients;
  std::mutex mutex;
  const DataLayout layout{.cp = ranks};
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    ModelSpec spec = gpt_spec(config);
    spec.stacks.front().input = [](const PartArguments& arguments) {
      return std::make_unique<PairsInput>(arguments);
    };
    const auto model = make_model(spec, config, rank, {.vocab_pad_multiple = 8});
    ParamStore store(declared_parameters(*model),
                     {.dtype = at::kDouble,
                      .data_parallel = data_parallel_of(layout, rank, communicators),
                      .model = rank.model});
    store.initialize(3);
    store.zero_gradients();
    const auto source = make_dataset_source(std::make_shared<FieldsDataset>(),
                                            {.loader = {.sampler = {.micro_batch_size = 2}},
                                             .context_rank = rank.cp.rank,
                                             .context_ranks = rank.cp.size,
                                             .packs_documents = packs});
    const Microbatch microbatch = source->next();
    const at::Tensor loss = model->forward_step(microbatch, /*training=*/true).root;
    loss.backward();
    store.finalize_gradients();
    for (const Parameter* parameter : store.parameters())
      gradients.put(*parameter, parameter->grad());
    const std::lock_guard lock(mutex);
    outcome.loss = outcome.loss + loss.detach();
    if (ranks > 1) return;
    const at::NoGradGuard no_gradients;
    const Parameter& weight = *store.find("embedding.pairs");
    compare_gradient([&] { return model->forward_step(microbatch, /*training=*/true).root; },
                     weight.value(), weight.grad(), weight.name(), {.tolerance = 1e-6});
  });
  outcome.gradients = gradients.take();
  return outcome;
}

/// The pairs are opposite numbers, and so are the gradients of their weights.
TEST(SampleFields, ReachTheInputOfAGpt) {
  for (const bool packs : {false, true}) {
    const FieldsOutcome one = train_on_fields(1, packs);
    const at::Tensor& by_pairs = one.gradients.at("embedding.pairs");
    EXPECT_GT(by_pairs.abs().max().item<double>(), 1e-3);
    EXPECT_LE(difference(by_pairs.select(1, 0), -by_pairs.select(1, 1)), 1e-12);
    const FieldsOutcome two = train_on_fields(2, packs);
    EXPECT_LE(difference(two.loss, one.loss), 1e-12);
    for (const auto& [name, gradient] : one.gradients)
      EXPECT_LE(difference(two.gradients.at(name), gradient), 1e-12) << name;
  }
}

TEST(SampleFields, ReachAModelThroughHybridContextParallelism) {
  for (const std::int64_t ranks : {1, 2}) {
    double sum = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const auto source = make_dataset_source(
          std::make_shared<FieldsDataset>(),
          {.hybrid = HybridContextOptions{.rank = rank,
                                          .num_ranks = ranks,
                                          .max_rows_per_rank = 8 * (3 - ranks),
                                          .row_multiple = 3,
                                          .cost = {.per_token = 1, .per_squared_token = 0.1},
                                          .samples_of_step = [](std::int64_t) { return 2; }}});
      for (const Microbatch& microbatch : next_step(*source, 1)) sum += model(microbatch);
    }
    EXPECT_EQ(sum, kSum) << ranks << " ranks";
  }
}

/// Returns 32 samples of 96 positions with different numbers of tokens.
std::shared_ptr<const Dataset> bert_samples() {
  const TemporaryFolder folder;
  TokenizerConfig tokenizer;
  tokenizer.tokenizer_type = "BertWordPieceLowerCase";
  tokenizer.vocab_file =
      folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n");
  DataConfig config;
  config.mock_data = true;
  const std::shared_ptr<const Tokenizer> text = make_tokenizer(tokenizer);
  DatasetRequest request{.sequence_length = 96, .num_samples = {32, 0, 0}, .cache = false};
  request.tokenizer = {.vocab_size = text->vocab_size(), .eod = 3};
  request.kind = SampleKind::bert;
  request.masked = masked_request(request.kind, {}, text, 0);
  return build_datasets(config, request).splits[0];
}

TEST(SampleFields, OfBertArriveWithDocumentIdsOfThePadding) {
  const std::shared_ptr<const Dataset> samples = bert_samples();
  const auto open = [&](std::int64_t ranks) {
    return make_dataset_source(
        samples, {.loader = {.sampler = {.micro_batch_size = 32}}, .context_ranks = ranks});
  };
  const Microbatch whole = open(1)->next(), half = open(2)->next();
  for (const char* name : {"tokens", "types", "labels", "padding_mask"}) {
    EXPECT_EQ(whole.at(name).sizes(), at::IntArrayRef({32, 96})) << name;
    EXPECT_EQ(whole.at(name).scalar_type(), at::kLong) << name;
    EXPECT_EQ(half.at(name).sizes(), at::IntArrayRef({32, 48})) << name;
    EXPECT_TRUE(half.at(name).narrow(1, 0, 24).equal(whole.at(name).narrow(1, 0, 24))) << name;
  }
  EXPECT_EQ(whole.at("loss_mask").scalar_type(), at::kFloat);
  EXPECT_TRUE(whole.at("position_ids").equal(at::arange(96).unsqueeze(0)));
  for (const char* name : {"is_random", "truncated"})
    EXPECT_EQ(half.at(name).sizes(), at::IntArrayRef({32})) << name;
  // Tokens do not attend to padding, at any position of the whole sequence.
  const at::Tensor is_padding = whole.at("padding_mask").eq(0);
  EXPECT_TRUE(is_padding.any().item<bool>());
  EXPECT_TRUE(whole.at("document_ids").equal(is_padding.to(at::kInt)));
  EXPECT_TRUE(half.at("document_ids").equal(whole.at("document_ids")));
}

TEST(SampleFields, OfBertComeWithoutPadding) {
  const std::shared_ptr<const Dataset> samples = bert_samples();
  const auto next = [&](std::int64_t row_multiple) {
    return make_dataset_source(samples, {.loader = {.sampler = {.micro_batch_size = 32}},
                                         .unpadded_row_multiple = row_multiple})
        ->next();
  };
  const Microbatch padded = next(0);
  const at::Tensor is_token = padded.at("padding_mask").ne(0), lengths = is_token.sum(1);
  const std::int64_t tokens = lengths.sum().item<std::int64_t>();
  // A prime that does not divide the number of tokens.
  for (const std::int64_t multiple : {std::int64_t{1}, std::int64_t{tokens % 7 != 0 ? 7 : 11}}) {
    const Microbatch packed = next(multiple);
    const std::int64_t rows = (tokens + multiple - 1) / multiple * multiple;
    for (const char* name : {"tokens", "types", "labels", "padding_mask", "loss_mask"}) {
      ASSERT_EQ(packed.at(name).sizes(), at::IntArrayRef({1, rows})) << name;
      EXPECT_TRUE(
          packed.at(name)[0].narrow(0, 0, tokens).equal(padded.at(name).masked_select(is_token)))
          << name;
    }
    EXPECT_TRUE(packed.at("position_ids")[0]
                    .narrow(0, 0, tokens)
                    .equal(at::arange(96).expand({32, 96}).masked_select(is_token)));
    EXPECT_TRUE(packed.num_tokens().equal(padded.num_tokens()));
    EXPECT_TRUE(packed.at("is_random").equal(padded.at("is_random")));
    EXPECT_FALSE(packed.has("document_ids"));
    ASSERT_TRUE(packed.packed.has_value());
    const std::int64_t more = rows > tokens ? 1 : 0;  // sequence of padding
    EXPECT_EQ(packed.packed->num_sequences(), 32 + more);
    EXPECT_EQ(packed.packed->padded_length, 96);
    EXPECT_EQ(packed.packed->cu_seqlens.back(), rows);
    EXPECT_EQ(packed.num_samples(), 32);
    EXPECT_EQ(std::ssize(packed.lengths), 32 + more);
    EXPECT_EQ(packed.sample_ordinals.numel(), 32 + more);
    EXPECT_TRUE(packed.sample_ordinals.narrow(0, 0, 32).equal(padded.sample_ordinals));
    for (std::int64_t i = 0; i < 32; ++i)
      EXPECT_EQ(packed.packed->cu_seqlens[static_cast<std::size_t>(i + 1)] -
                    packed.packed->cu_seqlens[static_cast<std::size_t>(i)],
                lengths[i].item<std::int64_t>());
    EXPECT_NEAR(packed.computed_samples().first, static_cast<double>(rows) / 96, 1e-9);
    EXPECT_EQ(padded.computed_samples().first, 32);
  }
}

}  // namespace
}  // namespace megatron
