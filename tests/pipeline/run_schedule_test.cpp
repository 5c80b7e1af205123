// Losses and gradients are bit-identical to those of one rank for every schedule and every split
// into stages.
#include "megatron/pipeline/run_schedule.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "pipeline/staged_gpt.h"
#include "support/gpt_model.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

TransformerConfig untied_gpt(std::int64_t num_layers) {
  TransformerConfig config = tiny_gpt();
  config.num_layers = num_layers;
  config.untie_embeddings_and_output_weights = true;
  return config;
}

std::vector<std::int64_t> chunk_counts(const std::string& schedule) {
  if (const std::int64_t fixed = fixed_num_chunks(schedule); fixed != 0) return {fixed};
  return schedule == "interleaved" ? std::vector<std::int64_t>{2, 3}
                                   : std::vector<std::int64_t>{1, 2};
}

std::string text_of(const StagedRun& run, std::size_t num_microbatches) {
  return run.schedule + ", " + std::to_string(run.layout.num_ranks) + " ranks, " +
         std::to_string(run.layout.num_chunks) + " chunks, " + std::to_string(num_microbatches) +
         " microbatches" + (run.messages_ahead ? "" : ", messages late");
}

void expect_one_ranks(const TransformerConfig& config, const std::vector<Microbatch>& batch,
                      const StagedRun& run) {
  SCOPED_TRACE(text_of(run, batch.size()));
  expect_same_bits(run_staged(config, batch, run), run_whole(config, batch, run));
}

class EverySchedule : public testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, GivesOneRanksBits) {
  const TransformerConfig config = untied_gpt(6);
  for (const std::int64_t microbatches : {2, 5}) {
    const auto batch = numbered_batches(microbatches, config.vocab_size);
    const StepOutcome one = run_whole(config, batch, {});
    for (const std::int64_t ranks : {1, 2, 4}) {
      for (const std::int64_t chunks : chunk_counts(GetParam())) {
        for (const bool ahead : {true, false}) {
          const StagedRun run{.layout = even_layout(GetParam(), ranks, chunks, 6),
                              .schedule = GetParam(),
                              .messages_ahead = ahead};
          SCOPED_TRACE(text_of(run, batch.size()));
          expect_same_bits(run_staged(config, batch, run), one);
        }
      }
    }
  }
}

TEST_P(EverySchedule, GivesOneRanksBitsInBf16) {
  const TransformerConfig config = untied_gpt(4);
  const StagedRun run{.layout = even_layout(GetParam(), 2, chunk_counts(GetParam())[0], 4),
                      .schedule = GetParam(),
                      .dtype = c10::kBFloat16};
  expect_one_ranks(config, numbered_batches(4, config.vocab_size), run);
}

/// The sum of a weight that two stages share is split, or has another order when one rank holds
/// both stages. Rounding then differs, but its copies stay bit-identical (GlobalTensors checks
/// them).
TEST_P(EverySchedule, TiedEmbeddingsGetBothStagesGradients) {
  TransformerConfig config = tiny_gpt();
  config.num_layers = 4;
  const auto batch = numbered_batches(3, config.vocab_size);
  const StagedRun run{.layout = even_layout(GetParam(), 2, chunk_counts(GetParam())[0], 4),
                      .schedule = GetParam(),
                      .dtype = c10::kDouble};
  const StepOutcome one = run_whole(config, batch, run), staged = run_staged(config, batch, run);
  ASSERT_EQ(staged.gradients.size(), one.gradients.size());
  for (const auto& [name, gradient] : one.gradients) {
    if (name == "embedding.word_embeddings.weight") {
      EXPECT_LE(difference(staged.gradients.at(name), gradient), 1e-15);
    } else {
      EXPECT_TRUE(at::equal(staged.gradients.at(name), gradient)) << name;
    }
  }
}

TEST_P(EverySchedule, EvaluatesAsOneRank) {
  const TransformerConfig config = untied_gpt(4);
  const StagedRun run{.layout = even_layout(GetParam(), 2, chunk_counts(GetParam())[0], 4),
                      .schedule = GetParam(),
                      .training = false};
  expect_one_ranks(config, numbered_batches(3, config.vocab_size), run);
}

TEST_P(EverySchedule, MicrobatchesMayDifferInShape) {
  const TransformerConfig config = untied_gpt(4);
  std::vector<Microbatch> batch = numbered_batches(5, config.vocab_size);
  batch[1] = patterned_batch(3, 5, config.vocab_size);
  batch[2] = patterned_batch(1, 8, config.vocab_size);
  batch[4] = patterned_batch(2, 1, config.vocab_size);
  expect_one_ranks(config, batch,
                   {.layout = even_layout(GetParam(), 2, chunk_counts(GetParam())[0], 4),
                    .schedule = GetParam()});
}

INSTANTIATE_TEST_SUITE_P(RunSchedule, EverySchedule, testing::ValuesIn(schedule_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(RunSchedule, GroupsOfMicrobatchesOfAnySize) {
  const TransformerConfig config = untied_gpt(4);
  for (const std::int64_t group : {2, 3, 5}) {
    SCOPED_TRACE(group);
    expect_one_ranks(config, numbered_batches(7, config.vocab_size),
                     {.layout = even_layout("interleaved", 2, 2, 4),
                      .schedule = "interleaved",
                      .microbatch_group = group});
  }
}

PipelineLayout stages(std::vector<StageLayers> list) {
  return {.num_ranks = static_cast<std::int64_t>(list.size()),
          .num_chunks = 1,
          .order = ChunkOrder::loop,
          .stages = std::move(list)};
}

TEST(RunSchedule, StagesMayBeUneven) {
  const TransformerConfig config = untied_gpt(4);
  const auto batch = numbered_batches(5, config.vocab_size);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    expect_one_ranks(
        config, batch,
        {.layout = stages({{0, 1, 0, true, false}, {1, 3, 0, false, true}}), .schedule = schedule});
    expect_one_ranks(
        config, batch,
        {.layout =
             stages({{0, 3, 0, true, false}, {3, 1, 0, false, false}, {4, 0, 0, false, true}}),
         .schedule = schedule});
  }
}

TEST(RunSchedule, EmbeddingAndLossMayStandAlone) {
  const TransformerConfig config = untied_gpt(2);
  const auto batch = numbered_batches(5, config.vocab_size);
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h2"}) {
    expect_one_ranks(config, batch,
                     {.layout = stages({{0, 0, 0, true, false},
                                        {0, 1, 0, false, false},
                                        {1, 1, 0, false, false},
                                        {2, 0, 0, false, true}}),
                      .schedule = schedule});
  }
}

TEST(RunSchedule, AStageMayBeEmpty) {
  const TransformerConfig config = untied_gpt(2);
  const auto batch = numbered_batches(5, config.vocab_size);
  for (const c10::ScalarType dtype : {c10::kFloat, c10::kBFloat16}) {
    expect_one_ranks(config, batch,
                     {.layout = stages({{0, 1, 0, true, false},
                                        {1, 0, 0, false, false},
                                        {1, 0, 0, false, false},
                                        {1, 1, 0, false, true}}),
                      .dtype = dtype});
  }
}

/// The gradients of tensor-parallel ranks are the same with and without the pipeline.
TEST(RunSchedule, StagesOfTensorParallelRanks) {
  const TransformerConfig config = untied_gpt(4);
  const auto batch = numbered_batches(4, config.vocab_size);
  const StepOutcome without =
      run_staged(config, batch, {.layout = single_stage_layout(4), .num_tensor_ranks = 2});
  for (const std::string& schedule : schedule_names()) {
    SCOPED_TRACE(schedule);
    const PipelineLayout layout = even_layout(schedule, 2, chunk_counts(schedule)[0], 4);
    expect_same_bits(
        run_staged(config, batch, {.layout = layout, .schedule = schedule, .num_tensor_ranks = 2}),
        without);
  }
}

/// Lets backward fail at the output of the first layer.
class FailingBackward : public UnitHooks {
 public:
  void after_forward(const Module& unit, const at::Tensor& output) override {
    if (unit.path() != "decoder.layers.0") return;
    output.register_hook(
        [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("backward fails"); });
  }
};

TEST(RunSchedule, AFailedBackwardDefersNoLaterContributions) {
  const TransformerConfig config = untied_gpt(2);
  const StagedRun run{.layout = single_stage_layout(2), .schedule = "zb-h1"};
  const auto batch = numbered_batches(2, config.vocab_size);
  const auto model = make_gpt_model(config, Rank{}, 8);
  ParamStore store(declared_parameters(*model), store_options(run));
  store.initialize(3);
  store.zero_gradients();
  FailingBackward hooks;
  const UnitHooksScope hooked(*model, hooks);
  const Axis alone{.name = "pp"};
  EXPECT_ANY_THROW(run_schedule(run.make(2), {*model, store, alone},
                                {.batch = batch, .on_loss = [](std::size_t, const StepOutput& out) {
                                   return scale_of(out, 2);
                                 }}));
  Parameter& weight = *store.parameters().front();
  ASSERT_FALSE(weight.defers_gradient());
  store.zero_gradients();
  weight.contribute(at::full(weight.local_shape(), 5.0));
  EXPECT_TRUE(weight.grad().eq(5).all().item<bool>());
}

/// A group whose sends keep their tensor until they are waited for, as those of NCCL do.
class KeepingComm final : public Comm {
 public:
  KeepingComm(std::shared_ptr<Comm> comm, std::atomic<int>& most_kept)
      : comm_(std::move(comm)), most_kept_(most_kept) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return comm_->name(); }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }

 protected:
  PendingWork start(CommCall call) override {
    if (call.operation == CommOperation::recv)
      return comm_->start_recv(call.out, call.peer, call.what);
    comm_->send(call.in, call.peer, call.what);
    return std::make_unique<KeepingWork>(*this, call.in);
  }
  void run(CommCall call) override { start(std::move(call))->wait(); }

 private:
  class KeepingWork final : public Work {
   public:
    KeepingWork(KeepingComm& comm, at::Tensor tensor) : comm_(comm), tensor_(std::move(tensor)) {
      ++comm_.num_kept_;
      comm_.most_kept_ = std::max<int>(comm_.most_kept_, comm_.num_kept_);
    }
    ~KeepingWork() override { KeepingWork::wait(); }
    void wait() override {
      if (tensor_.defined()) --comm_.num_kept_;
      tensor_.reset();
    }
    bool is_done() const override { return true; }

   private:
    KeepingComm& comm_;
    at::Tensor tensor_;
  };

  std::shared_ptr<Comm> comm_;
  int num_kept_ = 0;
  std::atomic<int>& most_kept_;
};

TEST(RunSchedule, SentTensorsAreLetGo) {
  const TransformerConfig config = untied_gpt(2);
  std::atomic<int> most_kept{0};
  const StagedRun run{.layout = even_layout("gpipe", 2, 1, 2),
                      .schedule = "gpipe",
                      .pipeline_comm_of = [&](std::shared_ptr<Comm> comm) {
                        return std::make_shared<KeepingComm>(std::move(comm), most_kept);
                      }};
  expect_one_ranks(config, numbered_batches(8, config.vocab_size), run);
  EXPECT_EQ(most_kept, 1);
}

}  // namespace
}  // namespace megatron
