// BERT's heads against the formulas of megatron-core's BertLMHead, Pooler and BertModel written in
// ATen, gradients against central differences, and tensor parallelism against one rank.
#include "megatron/nn/bert_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/forward_context.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/global_tensor.h"
#include "support/gradient_check.h"
#include "support/tensor_ranks.h"

namespace megatron {
namespace {

constexpr std::int64_t kPositions = 4, kSamples = 3, kHidden = 12, kVocabulary = 13;

TransformerConfig small_config() {
  TransformerConfig config;
  config.hidden_size = kHidden;
  config.vocab_size = kVocabulary;
  return config;
}

/// Four masked tokens in three samples; the other tokens have the label −1.
Microbatch masked_batch() {
  Microbatch batch;
  batch.tensors = {
      {"labels", at::tensor({-1, 3, -1, 12, -1, -1, 0, -1, 7, -1, -1, -1}, at::kLong)
                     .view({kSamples, kPositions})},
      {"loss_mask", at::tensor({0.f, 1.f, 0.f, 1.f, 0.f, 0.f, 1.f, 0.f, 1.f, 0.f, 0.f, 0.f})
                        .view({kSamples, kPositions})},
      {"is_random", at::tensor({0, 1, 1}, at::kLong)}};
  return batch;
}

struct Heads {
  explicit Heads(const Rank& own_rank)
      : rank(own_rank),
        output(&model, "output_layer", output_weight_spec(config, 4), rank.tp),
        masked_lm(&model, config, rank, output.parameter, 4),
        binary(&model, config, rank),
        store(declared_parameters(model), {.dtype = at::kDouble}) {
    store.initialize(5);
    disturb(store, 0.3);
    context.sequence_parallel = rank.sequence_parallel;
  }
  StepOutput loss(const at::Tensor& hidden_sbh) const {
    const std::array<const Head*, 2> both{&masked_lm, &binary};
    return sum_of_heads(both, hidden_sbh, masked_batch(), context, {});
  }
  at::Tensor value(const std::string& name) const { return store.find(name)->value(); }

  const Rank rank;
  const TransformerConfig config = small_config();
  BareModule model;
  ParameterModule output;
  MaskedLmHead masked_lm;
  ClassHead binary;
  ParamStore store;
  ForwardContext context;
};

at::Tensor cross_entropies(const at::Tensor& logits, const at::Tensor& labels) {
  return -at::log_softmax(logits, -1).gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1);
}

TEST(BertHeads, AreTheirFormulas) {
  const Heads heads{Rank{}};
  const at::Tensor hidden = random_input({kPositions, kSamples, kHidden}).detach();
  const Microbatch batch = masked_batch();
  const auto linear_of = [&](const at::Tensor& x, const std::string& path, std::int64_t rows) {
    return at::linear(x, heads.value(path + ".weight").narrow(0, 0, rows),
                      heads.value(path + ".bias").narrow(0, 0, rows));
  };
  const at::Tensor transformed = at::layer_norm(
      at::gelu(linear_of(hidden, "lm_head.dense", kHidden)), {kHidden},
      heads.value("lm_head.layer_norm.weight"), heads.value("lm_head.layer_norm.bias"), 1e-5);
  const at::Tensor token_losses = cross_entropies(
      linear_of(transformed, "output_layer", kVocabulary).transpose(0, 1), batch.at("labels"));
  const at::Tensor lm = (token_losses * batch.at("loss_mask")).sum();
  const at::Tensor pooled = at::tanh(linear_of(hidden[0], "pooler.dense", kHidden));
  const at::Tensor sop =
      cross_entropies(linear_of(pooled, "binary_head", 2), batch.at("is_random")).sum();

  const StepOutput output = heads.loss(hidden);
  const at::Tensor has_label = batch.at("labels").ge(0);
  EXPECT_GT(has_label.logical_not().sum().item<std::int64_t>(), 0);
  EXPECT_LT(difference(output.token_losses * has_label, token_losses * has_label), 1e-12);
  ASSERT_EQ(output.terms.size(), 2u);
  EXPECT_EQ(output.terms[0].name, "lm loss");
  EXPECT_LT(difference(output.terms[0].sum, lm), 1e-12);
  EXPECT_EQ(output.terms[0].count.item<double>(), 4);
  EXPECT_EQ(output.terms[1].name, "sop loss");
  EXPECT_LT(difference(output.terms[1].sum, sop), 1e-12);
  EXPECT_EQ(output.terms[1].count.item<double>(), kSamples);
  EXPECT_LT(difference(output.root / output.count, lm / 4 + sop / 3), 1e-12);
}

TEST(BertHeads, GradientsEqualCentralDifferences) {
  Heads heads{Rank{}};
  const at::Tensor hidden = random_input({kPositions, kSamples, kHidden});
  check_gradients([&] { return heads.loss(hidden).root; }, {hidden}, &heads.store,
                  {.tolerance = 1e-7});
}

struct Outcome {
  at::Tensor root, dhidden;
  std::map<std::string, at::Tensor> gradients;
};

Outcome run(const TensorLayout& layout) {
  Outcome outcome;
  GlobalTensors gradients;
  std::mutex mutex;
  std::vector<at::Tensor> slices(static_cast<std::size_t>(layout.tp));
  on_tensor_ranks(layout, [&](const Rank& rank, Communicators&) {
    Heads heads(rank);
    heads.store.zero_gradients();
    at::Tensor hidden = random_input({kPositions, kSamples, kHidden}).detach();
    const std::int64_t rows = layout.sequence_parallel ? kPositions / layout.tp : kPositions;
    if (layout.sequence_parallel) hidden = hidden.narrow(0, rank.tp.rank * rows, rows).clone();
    hidden.set_requires_grad(true);
    const StepOutput output = heads.loss(hidden);
    output.root.backward();
    heads.store.finalize_gradients();
    for (const Parameter* parameter : heads.store.parameters())
      gradients.put(*parameter, parameter->grad());
    const std::lock_guard lock(mutex);
    slices[static_cast<std::size_t>(rank.tp.rank)] = hidden.grad();
    outcome.root = output.root.detach();
  });
  outcome.dhidden = layout.sequence_parallel ? at::cat(slices) : slices.front();
  outcome.gradients = gradients.take();
  return outcome;
}

TEST(BertHeads, TensorAndSequenceParallelRanksEqualOne) {
  const Outcome one = run({});
  for (const TensorLayout& layout :
       {TensorLayout{.tp = 2}, TensorLayout{.tp = 4, .sequence_parallel = true}}) {
    SCOPED_TRACE(layout.name());
    const Outcome many = run(layout);
    EXPECT_LT(difference(many.root, one.root), 1e-12);
    EXPECT_LT(difference(many.dhidden, one.dhidden), 1e-12);
    for (const auto& [name, gradient] : one.gradients)
      EXPECT_LT(difference(many.gradients.at(name), gradient), 1e-12) << name;
  }
}

/// A head of three classes of each sequence, or with `num_choices` of scores of so many choices.
struct Finetuned {
  explicit Finetuned(const Rank& own_rank, std::int64_t choices = 1)
      : rank(own_rank),
        num_choices(choices),
        head(&model, config, rank,
             {.path = "classification_head",
              .num_outputs = choices > 1 ? 1 : 3,
              .label = "class",
              .loss_name = "lm loss",
              .shows_accuracy = true}),
        store(declared_parameters(model), {.dtype = at::kDouble}) {
    store.initialize(5);
    disturb(store, 0.3);
    context.sequence_parallel = rank.sequence_parallel;
  }
  Microbatch batch() const {
    Microbatch batch;
    batch.tensors["class"] = at::tensor({1, 0, 1}, at::kLong);
    if (num_choices > 1)
      batch.tensors[kChoiceStarts] = at::tensor({0, 2}, at::kLong).expand({kSamples, 2});
    return batch;
  }
  StepOutput loss(const at::Tensor& hidden_sbh) const {
    return head.loss(hidden_sbh, batch(), context, {});
  }
  at::Tensor value(const std::string& name) const { return store.find(name)->value(); }
  /// Returns the scores of the row at a position of each sample.
  at::Tensor scores(const at::Tensor& hidden_sbh, std::int64_t position) const {
    const at::Tensor pooled = at::tanh(
        at::linear(hidden_sbh[position], value("pooler.dense.weight"), value("pooler.dense.bias")));
    return at::linear(pooled, value("classification_head.weight"),
                      value("classification_head.bias"));
  }

  const Rank rank;
  const std::int64_t num_choices;
  const TransformerConfig config = small_config();
  BareModule model;
  ClassHead head;
  ParamStore store;
  ForwardContext context;
};

TEST(ClassHead, HasTheLossAndAccuracyOfItsFormula) {
  const at::Tensor hidden = random_input({kPositions, kSamples, kHidden}).detach();
  for (const std::int64_t choices : {1, 2}) {
    const Finetuned finetuned(Rank{}, choices);
    const at::Tensor first = finetuned.scores(hidden, 0),
                     logits =
                         choices == 1 ? first : at::cat({first, finetuned.scores(hidden, 2)}, 1),
                     classes = finetuned.batch().at("class");
    const StepOutput output = finetuned.loss(hidden);
    EXPECT_LT(difference(output.root, cross_entropies(logits, classes).sum()), 1e-12);
    EXPECT_EQ(output.count.item<double>(), kSamples);
    ASSERT_EQ(output.terms.size(), 2u);
    EXPECT_EQ(output.terms[1].name, kAccuracy);
    EXPECT_EQ(output.terms[1].sum.item<double>(),
              (logits.argmax(1) == classes).sum().item<double>());
    EXPECT_EQ(output.terms[1].count.item<double>(), kSamples);
  }
}

TEST(ClassHead, GradientsEqualCentralDifferences) {
  for (const std::int64_t choices : {1, 2}) {
    Finetuned finetuned(Rank{}, choices);
    const at::Tensor hidden = random_input({kPositions, kSamples, kHidden});
    check_gradients([&] { return finetuned.loss(hidden).root; }, {hidden}, &finetuned.store,
                    {.tolerance = 1e-7});
  }
}

/// The choices begin on several ranks of a divided sequence.
TEST(ClassHead, TensorAndSequenceParallelRanksEqualOne) {
  const at::Tensor whole = random_input({kPositions, kSamples, kHidden}).detach();
  const double expected = Finetuned(Rank{}, 2).loss(whole).root.item<double>();
  for (const TensorLayout& layout :
       {TensorLayout{.tp = 2}, TensorLayout{.tp = 4, .sequence_parallel = true}})
    on_tensor_ranks(layout, [&](const Rank& rank, Communicators&) {
      const std::int64_t rows = kPositions / layout.tp;
      const at::Tensor hidden =
          layout.sequence_parallel ? whole.narrow(0, rank.tp.rank * rows, rows) : whole;
      EXPECT_NEAR(Finetuned(rank, 2).loss(hidden).root.item<double>(), expected, 1e-12);
    });
}

/// The second rank of cp does not hold the first row.
TEST(BertHeads, OnlyTheRankWithTheFirstRowHasTheClass) {
  Heads heads{Rank{}};
  const Axis cp{.name = "cp", .rank = 1, .size = 2};
  heads.context.cp = &cp;
  heads.store.zero_gradients();
  const StepOutput output = heads.binary.loss(random_input({kPositions, kSamples, kHidden}),
                                              masked_batch(), heads.context, {});
  EXPECT_EQ(output.root.item<double>(), 0);
  EXPECT_EQ(output.count.item<double>(), 0);
  EXPECT_EQ(heads.binary.count(masked_batch()).item<double>(), kSamples);
  output.root.backward();
  heads.store.finalize_gradients();
  EXPECT_EQ(heads.store.find("pooler.dense.weight")->grad().abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace megatron
