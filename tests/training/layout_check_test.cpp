// Right layouts agree with one rank, and every planted fault is found where it was planted.
#include "megatron/training/layout_check/layout_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/base/error.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

using Flags = std::vector<std::string>;

Flags small_run(const Flags& more) {
  Flags flags{"--num-layers",
              "4",
              "--hidden-size",
              "64",
              "--num-attention-heads",
              "4",
              "--seq-length",
              "32",
              "--micro-batch-size",
              "1",
              "--global-batch-size",
              "8",
              "--vocab-size",
              "61",
              "--tokenizer-type",
              "NullTokenizer",
              "--mock-data",
              "--train-iters",
              "10",
              "--lr",
              "1e-3",
              "--max-position-embeddings",
              "32"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

ScaledRun scaled(const Flags& flags, std::int64_t world_size, std::int64_t max_ranks = 64) {
  return scale_run(read_run(flags, world_size), world_size, max_ranks);
}

LayoutCheckResult check(const Flags& more, std::int64_t world_size,
                        const LayoutCheckOptions& options = {}) {
  return check_layout(scaled(small_run(more), world_size), options);
}

const Flags kTp{"--tensor-model-parallel-size", "2"};
const Flags kTpDp{"--tensor-model-parallel-size", "2", "--use-distributed-optimizer"};
const Flags kCp{"--context-parallel-size", "2"};

/// A group whose calls pass through a function first.
class ChangedComm final : public Comm {
 public:
  /// Changes a call; returns whether it is made at all.
  using Change = std::function<bool(CommCall& call)>;
  /// Runs after a blocking call.
  using Then = std::function<void(const CommCall& call)>;

  ChangedComm(std::shared_ptr<Comm> comm, Change change, Then then)
      : comm_(std::move(comm)), change_(std::move(change)), then_(std::move(then)) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return comm_->name(); }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }

 protected:
  struct Done final : Work {
    void wait() override {}
  };
  /// Every call is complete when it returns, so that `then` sees its result.
  PendingWork start(CommCall call) override {
    if (is_message(call.operation)) return start_on(*comm_, std::move(call));
    run(std::move(call));
    return std::make_unique<Done>();
  }
  void run(CommCall call) override {
    call.axis = comm_->name();
    if (change_ && !change_(call)) return;
    run_on(*comm_, call);
    if (then_) then_(call);
  }

 private:
  std::shared_ptr<Comm> comm_;
  Change change_;
  Then then_;
};

class ChangedCommunicators final : public Communicators {
 public:
  ChangedCommunicators(Communicators& own, ChangedComm::Change change, ChangedComm::Then then)
      : own_(own), change_(std::move(change)), then_(std::move(then)) {}
  std::int64_t rank() const override { return own_.rank(); }
  std::int64_t world_size() const override { return own_.world_size(); }
  std::shared_ptr<Comm> group(const std::vector<std::int64_t>& ranks,
                              const std::string& name) override {
    const auto comm = own_.group(ranks, name);
    return comm ? std::make_shared<ChangedComm>(comm, change_, then_) : nullptr;
  }
  void abort(const std::string& reason) override { own_.abort(reason); }
  CommCounters& counters() override { return own_.counters(); }
  void note_iteration(std::int64_t iteration) override { own_.note_iteration(iteration); }
  void set_deadline(const Deadline& deadline) override { own_.set_deadline(deadline); }
  void begin_section(const std::string& what) override { own_.begin_section(what); }
  void end_section() override { own_.end_section(); }
  std::shared_ptr<FailureNotice> failure_notice() override { return own_.failure_notice(); }

 private:
  Communicators& own_;
  ChangedComm::Change change_;
  ChangedComm::Then then_;
};

LayoutCheckOptions with_comm(const ChangedComm::Change& change,
                             const ChangedComm::Then& then = {}) {
  return {.communicators = [change, then](Communicators& own) -> std::unique_ptr<Communicators> {
    return std::make_unique<ChangedCommunicators>(own, change, then);
  }};
}

/// Changes the microbatches of a rank.
class ChangedSource final : public MicrobatchSource {
 public:
  ChangedSource(std::unique_ptr<MicrobatchSource> own, std::function<void(Microbatch&)> change)
      : own_(std::move(own)), change_(std::move(change)) {}
  Microbatch next() override {
    Microbatch microbatch = own_->next();
    change_(microbatch);
    return microbatch;
  }

 private:
  std::unique_ptr<MicrobatchSource> own_;
  std::function<void(Microbatch&)> change_;
};

LayoutCheckOptions with_microbatches(std::int64_t rank,
                                     const std::function<void(Microbatch&, const Rank&)>& change) {
  return {.trainer = [rank, change](Trainer& trainer) {
    if (trainer.plan.rank.world.rank != rank) return;
    trainer.data.train = std::make_unique<ChangedSource>(
        std::move(trainer.data.train),
        [&trainer, change](Microbatch& microbatch) { change(microbatch, trainer.plan.rank); });
  }};
}

CheckedKind first_kind(const LayoutCheckResult& result) {
  EXPECT_FALSE(result.agrees()) << "the fault was not found";
  return result.agrees() ? CheckedKind::initial_weight : result.differences.front().kind;
}

TEST(Shrink, KeepsWhatDividesASize) {
  for (std::int64_t modulus : {1, 2, 6, 8, 12, 64}) {
    for (std::int64_t value = 1; value < 400; ++value) {
      for (const std::int64_t least : {std::int64_t{1}, value / 2 + 1, value}) {
        const std::int64_t small = shrink(value, modulus, least);
        ASSERT_EQ(std::gcd(small, modulus), std::gcd(value, modulus));
        ASSERT_GE(small, least);
        ASSERT_LE(small, value);
      }
    }
  }
}

// Llama 3.1 405B on 16 × 8 × 16 ranks with two instances of the optimizer.
TEST(ScaledRun, KeepsTheLayoutOfALargeModel) {
  const ScaledRun run = scaled({"--num-layers",
                                "128",
                                "--hidden-size",
                                "16384",
                                "--ffn-hidden-size",
                                "53248",
                                "--num-attention-heads",
                                "128",
                                "--group-query-attention",
                                "--num-query-groups",
                                "8",
                                "--seq-length",
                                "8192",
                                "--max-position-embeddings",
                                "8192",
                                "--micro-batch-size",
                                "1",
                                "--global-batch-size",
                                "2048",
                                "--vocab-size",
                                "128256",
                                "--swiglu",
                                "--normalization",
                                "RMSNorm",
                                "--position-embedding-type",
                                "rope",
                                "--disable-bias-linear",
                                "--untie-embeddings-and-output-weights",
                                "--tensor-model-parallel-size",
                                "8",
                                "--sequence-parallel",
                                "--pipeline-model-parallel-size",
                                "16",
                                "--num-layers-per-virtual-pipeline-stage",
                                "4",
                                "--use-distributed-optimizer",
                                "--num-distributed-optimizer-instances",
                                "2",
                                "--bf16",
                                "--train-iters",
                                "10",
                                "--lr",
                                "1e-4",
                                "--mock-data"},
                               2048);
  const Settings& s = run.run.options.settings;
  EXPECT_EQ(run.world_size, 8 * 16 * 4) << "two replicas for each of two instances";
  EXPECT_EQ(s.model->num_query_groups, 8) << "one for each rank of tp, as before";
  EXPECT_EQ(s.model->num_attention_heads, 16) << "several of a group";
  EXPECT_EQ(s.model->num_layers, 2 * 16 * 2) << "two layers of each of two chunks";
  EXPECT_EQ(s.training->seq_length % 8, 0);
  EXPECT_LE(s.training->seq_length, 64);
  EXPECT_LE(s.model->hidden_size, 256);
  EXPECT_EQ(s.training->global_batch_size % 2, 0);
  EXPECT_NE(*s.tokenizer->vocab_size % (8 * s.tokenizer->make_vocab_size_divisible_by), 0)
      << "128256 = 125.25 · 128 · 8 is padded";
}

TEST(LayoutCheck, RightLayoutsAgree) {
  const std::vector<std::pair<std::int64_t, Flags>> layouts{
      {1, {}},
      {2, kTp},
      {4, kTpDp},
      {4,
       {"--tensor-model-parallel-size", "2", "--sequence-parallel",
        "--pipeline-model-parallel-size", "2"}},
      {4, {"--context-parallel-size", "2", "--use-distributed-optimizer"}},
      {2, {"--zero-stage", "3", "--swiglu", "--disable-bias-linear"}},
      {4,
       {"--num-experts", "4", "--moe-router-topk", "2", "--expert-model-parallel-size", "2",
        "--moe-token-dispatcher-type", "alltoall", "--tensor-model-parallel-size", "2",
        "--sequence-parallel"}},
      {4,
       {"--group-query-attention", "--num-query-groups", "2", "--tensor-model-parallel-size", "4"}},
      {2, {"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-h1"}},
      {4,
       {"--num-experts", "4", "--expert-model-parallel-size", "2",
        "--moe-router-load-balancing-type", "global_aux_loss", "--moe-aux-loss-coeff", "0.1"}},
      {2,
       {"--recompute-granularity", "full", "--recompute-method", "uniform",
        "--recompute-num-layers", "1", "--tensor-model-parallel-size", "2"}},
  };
  for (const auto& [ranks, flags] : layouts) {
    const ScaledRun run = scaled(small_run(flags), ranks);
    const LayoutCheckResult result = check_layout(run);
    EXPECT_TRUE(result.agrees()) << check_report(run, result);
    EXPECT_GT(result.num_compared, ranks * 50);
    EXPECT_LT(result.largest_relative, 1e-11);
  }
}

// Everything has a place in the reference but the loss of a rank's part of a sequence. It is
// compared as the loss of the step.
TEST(LayoutCheck, LeavesOutOnlySumsOfARanksRows) {
  EXPECT_EQ(check(kTpDp, 4).not_compared, std::set<std::string>{});
  EXPECT_EQ(check(kCp, 2).not_compared, std::set<std::string>{"loss"});
}

// Ranks of experts and instances of the optimizer divide the data-parallel ranks apart.
TEST(ScaledRun, KeepsReplicasOfExpertsInEachInstance) {
  const ScaledRun run =
      scaled(small_run({"--num-experts", "8", "--expert-model-parallel-size", "4",
                        "--use-distributed-optimizer", "--num-distributed-optimizer-instances", "2",
                        "--global-batch-size", "128", "--moe-token-dispatcher-type", "alltoall"}),
             128);
  EXPECT_EQ(run.world_size, 16) << "edp 4 in two instances of two";
  const LayoutCheckResult result = check_layout(run);
  EXPECT_TRUE(result.agrees()) << check_report(run, result);
}

// The tables say what a check leaves out. A remark that two settings share is noted once.
TEST(ScaledRun, LeavesOutWhatChangesNoLayout) {
  const ScaledRun run =
      scaled(small_run({"--bf16", "--reset-position-ids", "--eval-interval", "2", "--save",
                        "folder", "--log-interval", "5", "--optimizer-cpu-offload",
                        "--cpu-offloading", "--offload-folder", "folder", "--adam-eps", "1e-7"}),
             1);
  EXPECT_EQ(run.left_out, (std::vector<std::string>{"--bf16 (float64 is used)", "offload"}));
  const Settings& settings = run.run.options.settings;
  EXPECT_FALSE(settings.training->bf16 || settings.training->accumulate_allreduce_grads_in_fp32);
  EXPECT_FALSE(settings.training->eval_interval);
  EXPECT_TRUE(settings.data->reset_position_ids && settings.data->mock_data);
  EXPECT_EQ(settings.checkpoint->save, "");
  EXPECT_EQ(settings.logger->log_interval, LoggerConfig{}.log_interval);
  EXPECT_FALSE(settings.memory->offload.cpu_offloading);
  EXPECT_EQ(settings.optimizer->adam_eps, 1e-2);
}

// Layer 1 of a chunk is neither its first nor its last, but the only dense one.
TEST(ScaledRun, KeepsALayerOfEachKind) {
  const ScaledRun run =
      scaled(small_run({"--num-layers", "12", "--pipeline-model-parallel-size", "2",
                        "--num-experts", "4", "--moe-layer-freq", "([1]+[0]*4+[1])*2"}),
             2);
  EXPECT_EQ(run.run.options.settings.model->num_layers, 6);
  EXPECT_EQ(expert_layers(*run.run.options.settings.model),
            (std::vector<std::int64_t>{1, 0, 1, 1, 0, 1}));
}

// Where chunks have different kinds of layers, all keep as many as the one with the most.
TEST(ScaledRun, KeepsEquallyManyLayersOfEachChunk) {
  const ScaledRun run =
      scaled(small_run({"--num-layers", "12", "--pipeline-model-parallel-size", "2",
                        "--num-experts", "4", "--moe-layer-freq", "[1]+[0]*4+[1]*7"}),
             2);
  EXPECT_EQ(expert_layers(*run.run.options.settings.model),
            (std::vector<std::int64_t>{1, 0, 1, 1, 1, 1}));
}

// ---- what no rank has ----

std::vector<Gap> gaps_of_weight(const std::vector<TensorSlice>& slices) {
  ReferenceStep reference;
  reference.tensors[CheckedKind::gradient]["weight"] = at::zeros({4, 6}, at::kDouble);
  Coverage coverage;
  coverage.add(CheckedKind::gradient, "weight", reference.tensors[CheckedKind::gradient]["weight"],
               slices);
  return coverage.gaps(reference, {});
}

TEST(ScaledRun, KeepsRecurrentHeadsThatRanksOfContextDivide) {
  const ScaledRun run =
      scaled(small_run({"--experimental-attention-variant", "gated_delta_net",
                        "--tensor-model-parallel-size", "2", "--context-parallel-size", "4"}),
             8);
  const LinearAttentionConfig& linear = run.run.options.settings.model->linear_attention;
  EXPECT_EQ(linear.num_key_heads, 8) << "one for each rank, of 16";
  EXPECT_EQ(linear.num_value_heads, 16) << "two for each of them";
}

TEST(Coverage, MissesTheElementsOfAParameterThatNoRankHas) {
  const TensorSlice all{.global_offset = {0, 0}, .local_offset = {0, 0}, .shape = {4, 6}},
      left{.global_offset = {0, 0}, .local_offset = {0, 0}, .shape = {4, 2}},
      right{.global_offset = {1, 2}, .local_offset = {0, 0}, .shape = {3, 4}};
  EXPECT_TRUE(gaps_of_weight({all}).empty());
  const std::vector<Gap> gaps = gaps_of_weight({left, right});
  ASSERT_EQ(gaps.size(), 1U);
  EXPECT_EQ(gaps[0].num_missing, 4);
  EXPECT_EQ(gaps[0].num_elements, 24);
  EXPECT_EQ(gaps[0].first, (Shape{0, 2}));
  EXPECT_EQ(gaps_of_weight({})[0].num_missing, 24);
}

TEST(Coverage, MissesRowsSamplesAndChannelsOfAnOp) {
  ReferenceStep reference;
  reference.ops = {"mlp", "loss", "other"};
  const at::Tensor whole = at::zeros({4, 1, 3}, at::kDouble);
  reference.activations["mlp"] = {{0, whole}, {8, whole}};
  reference.activations["loss"] = {{0, at::zeros({}, at::kDouble)}};
  reference.activations["other"] = {{0, whole}};
  Coverage coverage;
  const auto index = [](const std::vector<std::int64_t>& values) {
    return at::tensor(values, at::kLong);
  };
  coverage.add("mlp", 0, whole, {index({0, 3}), at::Tensor(), at::Tensor()});
  coverage.add("mlp", 0, whole, {index({1}), at::Tensor(), index({0, 2})});
  coverage.add("loss", 0, reference.activations["loss"][0], {});
  const std::vector<Gap> gaps = coverage.gaps(reference, {});
  ASSERT_EQ(gaps.size(), 3U);
  EXPECT_EQ(gaps[0].num_missing, 1 + 3);
  EXPECT_EQ(gaps[0].first, (Shape{1, 0, 1}));
  EXPECT_EQ(gaps[1].num_missing, 12) << "sample 8";
  EXPECT_EQ(gaps[2].name, "other") << "which no rank runs";
  EXPECT_EQ(coverage.gaps(reference, {"mlp"}).size(), 1U);
  EXPECT_TRUE(coverage.gaps(reference, {"mlp", "other"}).empty()) << "what nobody compares is said";
}

TEST(CheckReport, NamesWhatNoRankHas) {
  const ScaledRun run = scaled(small_run(kTp), 2);
  LayoutCheckResult result{.world_size = 2, .num_compared = 100};
  EXPECT_TRUE(result.agrees());
  result.gaps = {{CheckedKind::gradient, "decoder.final_layernorm.weight", 4, 24, {0, 2}}};
  EXPECT_FALSE(result.agrees());
  EXPECT_NE(
      check_report(run, result)
          .find(
              "  on no rank: gradient decoder.final_layernorm.weight, 4 of 24 elements, the first "
              "at [0, 2]\nwrong: no rank has all of 1 tensors"),
      std::string::npos)
      << check_report(run, result);
  EXPECT_NE(check_json(run, result).find("\"on_no_rank\":[{\"kind\":\"gradient\""),
            std::string::npos);
}

TEST(CheckReport, NamesThePlaceOfAFault) {
  const ScaledRun run = scaled(small_run(kTpDp), 4);
  const LayoutCheckResult result =
      check_layout(run, {.settings = [](std::int64_t rank, RunConfig& changed) {
                     if (rank == 1) changed.options.settings.training->seed = 77;
                   }});
  const std::string report = check_report(run, result);
  EXPECT_NE(report.find("check of 4 ranks (tp 2, dp 2), one step in float64\n"), std::string::npos);
  EXPECT_NE(report.find("  the first to differ: initial weight embedding.word_embeddings.weight on "
                        "tp 1 and dp 0; rank 1 has "),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("\nwrong: "), std::string::npos);
  const std::string json = check_json(run, result);
  EXPECT_EQ(json.find("{\"agrees\":false,\"world_size\":4,"), 0U) << json.substr(0, 100);
  EXPECT_NE(json.find("{\"kind\":\"initial weight\",\"name\":\"embedding.word_embeddings.weight\","
                      "\"rank\":1,"),
            std::string::npos);
}

TEST(LayoutCheck, FindsAMissingReduction) {
  const auto result =
      check(kTp, 2, with_comm([](CommCall& call) {
              return call.axis != "tp" || call.operation != CommOperation::all_reduce;
            }));
  EXPECT_EQ(first_kind(result), CheckedKind::activation);
}

TEST(LayoutCheck, FindsADoubledReduction) {
  const auto twice = [](const CommCall& call) {
    if (std::string_view(call.what) == "gradients") at::Tensor(call.out).mul_(2);
  };
  const auto result = check(kTpDp, 4, with_comm({}, twice));
  EXPECT_EQ(first_kind(result), CheckedKind::gradient);
  EXPECT_NEAR(result.differences.front().worst.found / result.differences.front().worst.expected, 2,
              1e-6);
}

TEST(LayoutCheck, FindsAGradientThatIsAveragedTwice) {
  const auto halved = [](const CommCall& call) {
    if (std::string_view(call.what) == "gradients") at::Tensor(call.out).div_(2);
  };
  EXPECT_EQ(first_kind(check({}, 2, with_comm({}, halved))), CheckedKind::gradient);
}

TEST(LayoutCheck, FindsAWrongSeedOnOneRank) {
  const auto result = check(kTpDp, 4, {.settings = [](std::int64_t rank, RunConfig& run) {
                              if (rank == 1) run.options.settings.training->seed = 77;
                            }});
  EXPECT_EQ(first_kind(result), CheckedKind::initial_weight);
  EXPECT_EQ(result.differences.front().rank, 1);
}

TEST(LayoutCheck, FindsASwappedShard) {
  const std::string name = "decoder.layers.1.mlp.linear_fc1.weight";
  const auto result =
      check(kTp, 2, {.trainer = [&](Trainer& trainer) {
              const Axis& tp = trainer.plan.rank.tp;
              const Parameter& parameter = *trainer.state.weights->find(name);
              const at::Tensor mine = parameter.value().contiguous();
              const at::Tensor both = at::empty({2, mine.numel()}, mine.options());
              tp.comm->all_gather(both.view({-1}), mine.view({-1}), "test");
              trainer.state.weights->set_value(parameter, both[1 - tp.rank].view(mine.sizes()));
            }});
  EXPECT_EQ(first_kind(result), CheckedKind::initial_weight);
  EXPECT_EQ(result.differences.front().name, name);
}

TEST(LayoutCheck, FindsAStaleParameter) {
  const auto result = check(kTpDp, 4, with_comm([](CommCall& call) {
                              return call.operation != CommOperation::all_gather ||
                                     std::string_view(call.what) != "weights";
                            }));
  EXPECT_EQ(first_kind(result), CheckedKind::updated_weight);
}

/// The first update does not depend on the state, which is zero before it.
TEST(LayoutCheck, FindsWrongStateOfAnOptimizer) {
  const auto result = check({"--optimizer", "sgd", "--sgd-momentum", "0.9"}, 2,
                            {.settings = [](std::int64_t rank, RunConfig& run) {
                              if (rank == 1) run.options.settings.optimizer->sgd_momentum = 0.5;
                            }});
  EXPECT_EQ(first_kind(result), CheckedKind::updated_weight);
}

TEST(LayoutCheck, FindsAShiftedMask) {
  const auto shift = [](Microbatch& microbatch, const Rank& /*rank*/) {
    microbatch.tensors["loss_mask"] = microbatch.at("loss_mask").clone();
    microbatch.at("loss_mask").select(1, 7).zero_();
  };
  const auto result = check({}, 2, with_microbatches(1, shift));
  EXPECT_EQ(first_kind(result), CheckedKind::activation);
  EXPECT_EQ(result.differences.front().name, "loss");
}

TEST(LayoutCheck, FindsLocalNormalization) {
  const auto normalize_locally = [](Microbatch& microbatch, const Rank& rank) {
    microbatch = context_slice(std::move(microbatch), rank.cp.rank, rank.cp.size);
    microbatch.tensors["num_tokens"] = microbatch.at("loss_mask").sum();
  };
  const auto result = check(kCp, 2, with_microbatches(1, normalize_locally));
  EXPECT_FALSE(result.agrees());
}

TEST(DistinguishingAxes, NameTheCoordinatesThatFaultyRanksShare) {
  const Mesh mesh({.tp = 2, .pp = 2}, 8);
  EXPECT_EQ(distinguishing_axes(mesh, {0, 1, 2, 3, 4, 5, 6, 7}), "all ranks");
  EXPECT_EQ(distinguishing_axes(mesh, {1, 3, 5, 7}), "tp 1");
  EXPECT_EQ(distinguishing_axes(mesh, {4, 5}), "dp 0 and pp 1");
  EXPECT_EQ(distinguishing_axes(mesh, {0, 3}), "pp 0 (2 of 4 ranks)");
}

}  // namespace
}  // namespace megatron
