// A residual of two streams, a tensor that one layer publishes and a later one reads, token ids in
// a middle layer, and an encoder that a decoder reads: every layout has the losses and gradients of
// one rank.
#include "pipeline/two_streams.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>

#include "megatron/base/error.h"
#include "megatron/config/parallel_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/params/data_parallel.h"
#include "megatron/pipeline/model_runner.h"
#include "pipeline/staged_gpt.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kLayers = 4, kMicrobatches = 4;

/// With dropout, so that the masks of both streams count.
TransformerConfig small_config() {
  TransformerConfig config = tiny_gpt();
  config.num_layers = kLayers;
  config.untie_embeddings_and_output_weights = true;
  return config;
}

struct StreamRun {
  PipelineLayout layout = single_stage_layout(kLayers);
  std::string schedule = "1f1b";
  std::vector<LayerPolicy> policies = {};
  std::int64_t tp = 1, cp = 1;
  bool sequence_parallel = false;
  ModelFamily family = two_stream_family();

  std::string name() const {
    return schedule + " over " + std::to_string(layout.stages.size()) + " stages";
  }
};

/// Returns the sums of the losses and of the gradients over all ranks and microbatches.
StepOutcome run_streams(const StreamRun& run) {
  const TransformerConfig config = small_config();
  const std::vector<Microbatch> batch = numbered_batches(kMicrobatches, config.vocab_size);
  const Schedule schedule =
      StagedRun{.layout = run.layout, .schedule = run.schedule}.make(kMicrobatches);
  const ActivationPlan plan{.layers = run.policies};
  const std::int64_t world = run.tp * run.cp * run.layout.num_ranks;
  const Mesh mesh({.tp = run.tp, .cp = run.cp, .pp = run.layout.num_ranks}, world);
  StepOutcome outcome{std::vector<at::Tensor>(batch.size(), at::zeros({}, at::kDouble)), {}};
  GlobalTensors gradients;
  std::mutex mutex;
  const auto body = [&](Communicators& communicators) {
    const Rank rank = make_rank(mesh, communicators, {.sequence_parallel = run.sequence_parallel});
    const auto model = run.family.make(config, rank,
                                       {.vocab_pad_multiple = 8,
                                        .dtype = at::kDouble,
                                        .layout = &run.layout,
                                        .activations = &plan});
    ParamStore store(declared_parameters(*model),
                     {.dtype = at::kDouble,
                      .data_parallel = data_parallel(ParallelConfig{}, rank, &communicators),
                      .model = rank.model,
                      .pipeline = rank.pp,
                      .communicators = &communicators});
    store.initialize(3);
    disturb(store, 0.1);
    store.zero_gradients();
    std::vector<Microbatch> own;
    for (const Microbatch& microbatch : batch)
      own.push_back(context_slice(microbatch, rank.cp.rank, rank.cp.size));
    const auto on_loss = [&](std::size_t microbatch, const StepOutput& output) {
      const std::lock_guard lock(mutex);
      if (rank.tp.rank == 0)
        outcome.losses[microbatch] = outcome.losses[microbatch] + output.root.detach();
      return at::ones({}, at::kDouble);
    };
    run_schedule(schedule, {*model, store, rank.pp}, {.batch = own, .on_loss = on_loss});
    store.finalize_gradients();
    for (const Parameter* parameter : store.parameters())
      gradients.put(*parameter, parameter->grad());
  };
  run_rank_threads(world, body, {.timeout = std::chrono::seconds(20)});
  outcome.gradients = gradients.take();
  return outcome;
}

void expect_near(const StepOutcome& a, const StepOutcome& b, double tolerance) {
  for (std::size_t i = 0; i < b.losses.size(); ++i)
    EXPECT_LE(difference(a.losses[i], b.losses[i]), tolerance) << "loss of microbatch " << i;
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : b.gradients)
    EXPECT_LE(difference(a.gradients.at(name), gradient), tolerance) << name;
}

PipelineLayout uneven_layout(std::vector<StageLayers> stages) {
  PipelineLayout layout = even_layout("1f1b", std::ssize(stages), 1, kLayers);
  layout.stages = std::move(stages);
  return layout;
}

/// Layer 1 publishes and layer 3 reads, on different stages but for the last layout.
std::vector<StreamRun> pipelines() {
  std::vector<StreamRun> runs;
  runs.push_back({.layout = even_layout("1f1b", 2, 1, kLayers)});
  runs.push_back({.layout = even_layout("1f1b", 4, 1, kLayers)});
  runs.push_back({.layout = even_layout("interleaved", 2, 2, kLayers), .schedule = "interleaved"});
  runs.push_back({.layout = even_layout("zb-v", 2, 2, kLayers), .schedule = "zb-v"});
  runs.push_back({.layout = even_layout("zb-h1", 4, 1, kLayers), .schedule = "zb-h1"});
  runs.push_back({.layout = uneven_layout({{0, 2, 0, true, false},
                                           {2, 0, 0, false, false},  // neither publishes nor reads
                                           {2, 1, 0, false, false},
                                           {3, 1, 0, false, true}})});
  runs.push_back({.layout = uneven_layout({{0, 1, 0, true, false}, {1, 3, 0, false, true}})});
  return runs;
}

/// Layers that are recomputed, each alone or with the one before it.
std::vector<std::vector<LayerPolicy>> recomputations() {
  const LayerPolicy kept, full{.full = true}, joined{.full = true, .joins_previous = true};
  return {{full, full, full, full},
          {full, joined, full, joined},  // the publisher's group and the reader's
          {kept, full, kept, kept},      // the publisher
          {kept, kept, full, joined},    // the reader's group
          {kept, full, joined, joined},  // both in one group
          {full, joined, joined, joined}};
}

TEST(TwoStreams, OverStagesHaveOneRanksBits) {
  const StepOutcome one = run_streams({});
  EXPECT_GT(one.gradients.at("decoder.layers.1.mlp.memo_in").abs().max().item<double>(), 0);
  EXPECT_GT(
      one.gradients.at("decoder.layers.2.self_attention.token_table").abs().min().item<double>(),
      0);
  for (const StreamRun& run : pipelines()) {
    SCOPED_TRACE(run.name());
    expect_same_bits(run_streams(run), one);
  }
}

/// Returns what a pass wants of each rank's runner.
std::vector<at::Tensor> inferred(const PipelineLayout& layout, Wants wants) {
  const TransformerConfig config = small_config();
  const std::vector<Microbatch> batch = numbered_batches(1, config.vocab_size);
  const Mesh mesh({.pp = layout.num_ranks}, layout.num_ranks);
  std::vector<at::Tensor> results(static_cast<std::size_t>(layout.num_ranks));
  run_rank_threads(
      layout.num_ranks,
      [&](Communicators& communicators) {
        const Rank rank = make_rank(mesh, communicators);
        const auto model = two_stream_family().make(
            config, rank, {.vocab_pad_multiple = 8, .dtype = at::kDouble, .layout = &layout});
        ParamStore store(declared_parameters(*model),
                         {.dtype = at::kDouble, .with_gradients = false, .model = rank.model});
        store.initialize(3);
        const Pass pass{.microbatch = batch.front(), .wants = wants};
        at::Tensor& result = results[static_cast<std::size_t>(rank.index)];
        result = ModelRunner(*model, store, layout, rank.pp).infer(pass);
        EXPECT_EQ(result.sizes(), model->result_shape(pass));
      },
      {.timeout = std::chrono::seconds(20)});
  return results;
}

TEST(TwoStreams, HiddenRowsAreThoseOfBothStreams) {
  const at::Tensor one = inferred(single_stage_layout(kLayers), Wants::hidden).front();
  ASSERT_EQ(one.dim(), 4);
  EXPECT_EQ(one.size(2), kStreams);
  for (const at::Tensor& hidden : inferred(even_layout("1f1b", 2, 1, kLayers), Wants::hidden))
    EXPECT_TRUE(at::equal(hidden, one));
}

TEST(TwoStreams, RecomputedHaveTheSameBits) {
  const StepOutcome one = run_streams({});
  std::vector<StreamRun> runs = pipelines();
  runs.resize(3);
  runs.push_back({});
  for (std::size_t i = 0; const std::vector<LayerPolicy>& policies : recomputations()) {
    SCOPED_TRACE("recomputation " + std::to_string(i++));
    for (StreamRun run : runs) {
      SCOPED_TRACE(run.name());
      run.policies = policies;
      expect_same_bits(run_streams(run), one);
    }
  }
}

/// Without a use that counts, the gradient of what is published is zero, whether the reader's stage
/// returns zeros, has none to return, or does not receive the tensor.
TEST(TwoStreams, WhatTheLossDoesNotReachHasZeroGradients) {
  for (const MemoReader reader :
       {MemoReader::multiplies_by_zero, MemoReader::ignores, MemoReader::absent}) {
    const StepOutcome one = run_streams({.family = two_stream_family({.reader = reader})});
    EXPECT_EQ(one.gradients.at("decoder.layers.1.mlp.memo_in").abs().max().item<double>(), 0);
    std::vector<StreamRun> runs = pipelines();
    runs.resize(3);
    for (StreamRun& run : runs) {
      SCOPED_TRACE(run.name());
      run.family = two_stream_family({.reader = reader});
      expect_same_bits(run_streams(run), one);
      run.policies = recomputations()[0];
      expect_same_bits(run_streams(run), one);
    }
  }
}

/// A block of GPT whose input has a projection of what the encoder returns.
class MemoryBlock : public Sublayer {
 public:
  MemoryBlock(Module* parent, std::string_view name, const LayerArguments& arguments,
              const decltype(BlockSpec::make)& make)
      : Sublayer(parent, name, {}),
        weight_(declare("memory",
                        whole_weight({arguments.config.hidden_size, arguments.config.hidden_size},
                                     arguments.rank),
                        arguments.rank.tp)),
        block_(make(this, "block", arguments)) {}
  NormWeights input_norm() const override { return {}; }
  at::Tensor forward(const at::Tensor& hidden_sbh, const ForwardContext& context) override {
    const at::Tensor x = hidden_sbh + linear(context.published("encoder"), weight_, nullptr);
    const NormWeights own = block_->input_norm();
    return block_->forward(norm(x, *own.weight, own.bias, own.options), context);
  }

 private:
  Parameter& weight_;
  std::unique_ptr<Sublayer> block_;
};

/// The decoder's embeddings of the same tokens.
class DecoderInput : public Input {
 public:
  explicit DecoderInput(const PartArguments& arguments)
      : Input(arguments.parent, "decoder_embedding"),
        table_(declare("weight", word_embedding_spec(arguments.config, 8), arguments.rank.tp)) {}
  at::Tensor forward(const Microbatch&, const at::Tensor&,
                     const ForwardContext& context) const override {
    return embedding_lookup(context.tokens.t(), table_);
  }

 private:
  Parameter& table_;
};

/// The first half of the layers is an encoder; the attention of the others reads what it returns.
ModelFamily encoder_decoder_family() {
  ModelFamily family;
  family.name = family.title = "encoder-decoder";
  family.spec = [](const TransformerConfig& config) {
    StackSpec encoder, decoder;
    encoder.name = "encoder";
    encoder.config = config;
    encoder.config.num_layers = config.num_layers / 2;
    encoder.causal = false;
    encoder.layers.blocks = decoder_blocks;
    encoder.input = [](const PartArguments& arguments) {
      return std::make_unique<LanguageModelEmbedding>(arguments.parent, arguments.config,
                                                      arguments.rank,
                                                      word_embedding_spec(arguments.config, 8));
    };
    decoder.config = encoder.config;
    decoder.layers.blocks = [](const LayerKind& kind, std::int64_t layer) {
      std::vector<BlockSpec> blocks = decoder_blocks(kind, layer);
      blocks.front().reads = {"encoder"};
      blocks.front().make = [make = blocks.front().make](Module* parent, std::string_view name,
                                                         const LayerArguments& arguments) {
        return std::make_unique<MemoryBlock>(parent, name, arguments, make);
      };
      return blocks;
    };
    decoder.input = [](const PartArguments& arguments) {
      return std::make_unique<DecoderInput>(arguments);
    };
    ModelSpec spec;
    spec.stacks = {std::move(encoder), std::move(decoder)};
    spec.heads.emplace_back(make_language_model_head);
    return spec;
  };
  return family;
}

TEST(Stacks, ALaterOneReadsWhatAnEarlierOneReturns) {
  const StepOutcome one = run_streams({.family = encoder_decoder_family()});
  EXPECT_GT(one.gradients.at("encoder.layers.0.mlp.linear_fc1.weight").abs().max().item<double>(),
            0);
  for (StreamRun run : pipelines()) {
    SCOPED_TRACE(run.name());
    run.family = encoder_decoder_family();
    expect_same_bits(run_streams(run), one);
    run.policies = recomputations()[3];  // layers of the decoder only
    expect_same_bits(run_streams(run), one);
  }
}

/// Ranks that divide rows or weights add their gradients, and attention adds in blocks, so rounding
/// differs from one rank.
constexpr double kTolerance = 1e-12;

void expect_of_divided_rows(const StreamRun& divided) {
  const StepOutcome without = run_streams(divided);
  expect_near(without, run_streams({}), kTolerance);
  StreamRun staged = divided;
  staged.layout = even_layout("1f1b", 2, 1, kLayers);
  expect_same_bits(run_streams(staged), without);
  staged.policies = recomputations()[0];
  expect_same_bits(run_streams(staged), without);
  staged = divided;
  staged.layout = even_layout("interleaved", 2, 2, kLayers);
  staged.schedule = "interleaved";
  staged.policies = recomputations()[1];
  expect_same_bits(run_streams(staged), without);
}

TEST(TwoStreams, EqualOneRankWithContextParallelism) { expect_of_divided_rows({.cp = 2}); }

TEST(TwoStreams, EqualOneRankWithTensorParallelism) { expect_of_divided_rows({.tp = 2}); }

TEST(TwoStreams, EqualOneRankWithSequenceParallelism) {
  expect_of_divided_rows({.tp = 2, .sequence_parallel = true});
}

TEST(TwoStreams, EqualOneRankWithContextAndSequenceParallelism) {
  expect_of_divided_rows({.tp = 2, .cp = 2, .sequence_parallel = true});
}

/// The next stage would receive something else.
TEST(TwoStreams, APublishedTensorHasTheShapeOfItsSpec) {
  const TransformerConfig config = small_config();
  const PipelineLayout layout = even_layout("1f1b", 2, 1, kLayers);
  const Rank rank = make_rank(Mesh({.pp = 2}, 2), 0);
  const Microbatch microbatch = patterned_batch(2, 8, config.vocab_size);
  const auto forward = [&](std::int64_t declared_width) {
    const auto model = two_stream_family({.declared_width = declared_width})
                           .make(config, rank, {.vocab_pad_multiple = 8, .layout = &layout});
    ParamStore store(declared_parameters(*model), {});
    store.initialize(3);
    return model->forward_chunk(0, {.microbatch = microbatch, .training = true}, {}).activations;
  };
  const Activations sent = forward(kMemoWidth);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].sizes(), at::IntArrayRef({8, 2, kStreams, config.hidden_size}));
  EXPECT_EQ(sent[1].sizes(), at::IntArrayRef({8, 2, kMemoWidth}));
  EXPECT_THROW(forward(kMemoWidth + 1), InternalError);
}

}  // namespace
}  // namespace megatron
