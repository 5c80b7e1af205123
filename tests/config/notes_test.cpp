// Tests that flags which Megatron-LM accepts without effect are accepted with a note.
#include <gtest/gtest.h>

#include "config/small_run.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

std::string notes(const Args& more, std::int64_t world_size = 1) {
  return notes_text(read_run(small(more), world_size).parsed.notes);
}

struct NotedRun {
  Args words;
  std::string expected;
  std::int64_t world_size = 1;
};

void expect_notes(const std::vector<NotedRun>& table) {
  for (const NotedRun& run : table)
    EXPECT_THAT(notes(run.words, run.world_size), HasSubstr("  " + run.expected)) << run.words[0];
}

const Args kExperts{"--num-experts", "4", "--moe-router-topk", "2"};

Args with_experts(const Args& more) {
  Args words = kExperts;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Notes, FlagsWithoutEffectAreOneBlock) {
  EXPECT_EQ(notes({"--wandb-project", "p", "--async-ckpt-use-cpu-shm", "--cuda-graph-impl", "local",
                   "--fim-rate", "0.9", "--sequence-parallel"}),
            "accepted without effect:\n"
            "  --wandb-project: nothing is sent to Weights & Biases; metrics.jsonl under --save or "
            "--tensorboard-dir holds every metric\n"
            "  --cuda-graph-impl: steps run without CUDA graphs in this version, with the same "
            "results\n"
            "  --fim-rate: there is no --fim-data\n"
            "  --async-ckpt-use-cpu-shm: there is one checkpoint format, with checksums and for "
            "any layout\n"
            "note: --sequence-parallel: is turned off: --tensor-model-parallel-size is 1\n");
}

TEST(Notes, OfCheckpointsAndTraining) {
  expect_notes({
      {{"--save="}, "--save: it is empty, so nothing is saved\n"},
      {{"--load", ""}, "--load: it is empty, so nothing is loaded\n"},
      {{"--finetune"}, "--finetune: there is no --load\n"},
      {{"--ckpt-step", "3"}, "--ckpt-step: there is no --load\n"},
      {{"--exit-on-missing-checkpoint"}, "--exit-on-missing-checkpoint: there is no --load\n"},
      {{"--no-load-optim"}, "--no-load-optim: there is no --load\n"},
      {{"--save", "x", "--no-save-rng", "--no-load-rng"},
       "--no-save-rng, --no-load-rng: random numbers have no state that is saved or loaded\n"},
      {{"--no-barrier-with-level-1-timing"},
       "--no-barrier-with-level-1-timing: timers never wait for other ranks\n"},
      {{"--save", "x", "--replication-jump", "2"},
       "--replication-jump: there is no --replication\n"},
      {{"--save", "x", "--replication-factor", "3"},
       "--replication-factor: there is no --replication\n"},
      {{"--save", "x", "--replication", "--non-persistent-ckpt-type", "local",
        "--non-persistent-local-ckpt-dir", "y"},
       "--replication: there is no --non-persistent-save-interval\n"},
      {{"--start-eval-at-iter", "4"}, "--start-eval-at-iter: there is no --eval-interval\n"},
      {{"--decoupled-min-lr", "1e-5"}, "--decoupled-min-lr: there is no --decoupled-lr\n"},
      {{"--straggler-minmax-count", "2"}, "--straggler-minmax-count: there is no --log-straggler"},
      {{"--straggler-ctrlr-port", "65534"}, "--straggler-ctrlr-port: there is no --log-straggler"},
      {{"--disable-straggler-on-startup"},
       "--disable-straggler-on-startup: there is no --log-straggler\n"},
      {{"--check-for-spiky-loss", "--rerun-mode", "disabled"},
       "--check-for-spiky-loss: with --rerun-mode disabled"},
      {{"--error-injection-rate", "3", "--rerun-mode", "disabled"},
       "--error-injection-rate: there is no --rerun-mode validate_results\n"},
      {{"--error-injection-rate", "3", "--no-check-for-nan-in-loss-and-grad"},
       "--error-injection-rate: no result is checked\n"},
  });
}

// An earlier phase has its effect, so that the flag is not among those without.
TEST(Notes, OfPhasesBehindTheEnd) {
  EXPECT_EQ(notes({"--phase-transition-iterations", "4,12,10"}),
            "note: --phase-transition-iterations: has no effect at 12, 10: training ends at "
            "iteration 10\n");
  EXPECT_EQ(notes({"--phase-transition-iterations", "4"}), "");
}

TEST(Notes, OfSchedules) {
  expect_notes({
      {{"--lr-wsd-decay-iters", "3"}, "--lr-wsd-decay-iters: there is no --lr-decay-style WSD\n"},
      {{"--lr-wsd-decay-style", "linear"},
       "--lr-wsd-decay-style: there is no --lr-decay-style WSD\n"},
      {{"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "3", "--lr-wsd-decay-samples", "6"},
       "--lr-wsd-decay-samples: with --train-iters 10\n"},
      {{"--lr-warmup-init", "1e-5"}, "--lr-warmup-init: there is no warm-up\n"},
  });
  const auto wsd = [](const char* steps) {
    return notes({"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", steps, "--lr-warmup-fraction",
                  "0.2", "--lr-warmup-init", "1e-5"});
  };
  EXPECT_EQ(wsd("8"), "");
  EXPECT_EQ(wsd("9"),
            "note: --lr-wsd-decay-iters: is more than the 8 steps after the warm-up: the learning "
            "rate jumps where the warm-up ends\n");
  EXPECT_EQ(notes({"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "10"}), "");
  EXPECT_EQ(notes({"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "11"}),
            "note: --lr-wsd-decay-iters: is more than the 10 steps of the schedule: the learning "
            "rate decays from the first step on\n");
  EXPECT_THAT(mistake({"--lr-decay-style", "WSD", "--lr-wsd-decay-samples", "6"}),
              HasSubstr("add --lr-wsd-decay-iters N"));
}

TEST(Notes, OfPrecision) {
  expect_notes({
      {{"--loss-scale", "1024"}, "--loss-scale 1024: in fp32, which needs no loss scaling\n"},
      {{"--loss-scale", "0"}, "--loss-scale 0: in fp32, which needs no loss scaling\n"},
      {{"--bf16", "--attention-softmax-in-fp32"},
       "--attention-softmax-in-fp32: the attention softmax is always computed in fp32\n"},
      {{"--grad-reduce-in-bf16"}, "--grad-reduce-in-bf16: there is no --bf16: only bfloat16"},
      {{"--bf16", "--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"},
       "--accumulate-allreduce-grads-in-fp32: with --grad-reduce-in-bf16\n"},
      {{"--optimizer", "sgd", "--adam-beta1", "0.8"},
       "--adam-beta1: there is no --optimizer adam\n"},
      {{"--sgd-momentum", "0.8"}, "--sgd-momentum: there is no --optimizer sgd\n"},
  });
  const auto resolved = [](const Args& more) {
    Settings settings = read_run(small(more)).options.settings;
    resolve(settings);
    return settings;
  };
  EXPECT_FALSE(resolved({"--loss-scale", "1024"}).training->loss_scale.loss_scale.has_value());
  EXPECT_FALSE(resolved({"--fp16", "--grad-reduce-in-bf16"}).training->grad_reduce_in_bf16);
  EXPECT_FALSE(resolved({"--bf16", "--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32"})
                   .training->accumulate_allreduce_grads_in_fp32);
}

TEST(Notes, OfPositionsAndAttention) {
  const Args rope{"--position-embedding-type", "rope"};
  const auto with_rope = [&](Args more) {
    more.insert(more.end(), rope.begin(), rope.end());
    return more;
  };
  expect_notes({
      {{"--use-rope-scaling"}, "rotary scaling: there is no --position-embedding-type rope\n"},
      {{"--rotary-base", "5e5"}, "--rotary-base: there is no --position-embedding-type rope\n"},
      {{"--rotary-percent", "0.5"}, "--rotary-percent: there is no --position-embedding-type"},
      {{"--rotary-interleaved"}, "--rotary-interleaved: there is no --position-embedding-type"},
      {with_rope({"--rope-scaling-factor", "4"}),
       "--rope-scaling-factor: there is no --rope-scaling-type or --use-rope-scaling\n"},
      {with_rope({"--rope-low-freq-factor", "2"}),
       "--rope-low-freq-factor: there is no --use-rope-scaling\n"},
      {with_rope({"--rope-original-max-position-embeddings", "99"}),
       "--rope-original-max-position-embeddings: there is no --use-rope-scaling and no YaRN\n"},
      {with_rope({"--mscale", "2"}), "--yarn-mscale: there is no YaRN\n"},
      {with_rope({"--yarn-beta-fast", "16"}), "--yarn-beta-fast: there is no YaRN\n"},
      {with_rope({"--position-offset", "2"}),
       "--position-offset: there is no --position-embedding-type learned_absolute\n"},
      {{"--window-attn-skip-freq", "2"},
       "--window-attn-skip-freq: there is no --window-size or --attention-chunk-size\n"},
  });
  EXPECT_EQ(notes(with_rope({"--use-rope-scaling", "--rope-scaling-factor", "4",
                             "--rope-low-freq-factor", "2"})),
            "");
}

TEST(Notes, OfExperts) {
  expect_notes({
      {{"--moe-shared-expert-intermediate-size", "24", "--moe-router-topk", "4"},
       "--moe-shared-expert-intermediate-size, --moe-router-topk: there is no --num-experts\n"},
      {{"--moe-aux-loss-coeff", "1e-2"}, "--moe-aux-loss-coeff: there is no --num-experts\n"},
      {{"--moe-layer-freq", "2"}, "--moe-layer-freq: there is no --num-experts\n"},
      {{"--expert-tensor-parallel-size", "2", "--tensor-model-parallel-size", "2"},
       "--expert-tensor-parallel-size: there is no --num-experts\n",
       2},
      {{"--moe-upcycling-granularity", "2"},
       "--moe-upcycling-granularity: there is no --moe-use-upcycling\n"},
      {with_experts({"--moe-shared-expert-overlap"}),
       "--moe-shared-expert-overlap: there is no --moe-shared-expert-intermediate-size\n"},
      {with_experts({"--moe-router-pre-softmax", "--moe-router-score-function", "sigmoid"}),
       "--moe-router-pre-softmax: there is no --moe-router-score-function softmax\n"},
      {with_experts({"--moe-router-load-balancing-type", "sinkhorn", "--moe-router-score-function",
                     "sigmoid"}),
       "--moe-router-score-function: with --moe-router-load-balancing-type sinkhorn\n"},
  });
}

TEST(Notes, OfParallelism) {
  expect_notes({
      {{"--context-parallel-size", "4", "--hierarchical-context-parallel-sizes", "2", "2"},
       "--hierarchical-context-parallel-sizes: there is no --cp-comm-type a2a+p2p",
       4},
      {{"--max-seqlen-per-dp-cp-rank", "16"},
       "--max-seqlen-per-dp-cp-rank: there is no --hybrid-context-parallel\n"},
      {{"--ddp-reduce-scatter-with-fp32-accumulation"},
       "--ddp-reduce-scatter-with-fp32-accumulation: there is no --use-distributed-optimizer"},
      {{"--torch-fsdp2-no-reshard-after-forward"},
       "--torch-fsdp2-no-reshard-after-forward: there is no --use-torch-fsdp2\n"},
      {{"--suggested-communication-unit-size", "1000"},
       "--suggested-communication-unit-size: neither gradients nor weights are sharded\n"},
      {{"--use-megatron-fsdp", "--outer-dp-sharding-strategy", "optim"},
       "--outer-dp-sharding-strategy optim: it is for --zero-stage 3 with several "},
  });
}

TEST(Notes, OfSmallMemory) {
  expect_notes({
      {{"--optimizer-offload-fraction", "0.5"},
       "--optimizer-offload-fraction: there is no --optimizer-cpu-offload\n"},
      {{"--overlap-cpu-optimizer-d2h-h2d"},
       "--overlap-cpu-optimizer-d2h-h2d: there is no --optimizer-cpu-offload\n"},
      {{"--optimizer-cpu-offload", "--optimizer-offload-fraction", "0"},
       "--optimizer-cpu-offload: with --optimizer-offload-fraction 0\n"},
      {{"--activation-offload-fraction", "0.5"},
       "--activation-offload-fraction: there is no --fine-grained-activation-offloading\n"},
      {{"--offload-modules", "core_attn"},
       "--offload-modules: there is no --fine-grained-activation-offloading\n"},
      {{"--cpu-offloading-weights"}, "--cpu-offloading-weights: there is no --cpu-offloading\n"},
      {{"--no-cpu-offloading-activations"},
       "--no-cpu-offloading-activations: there is no --cpu-offloading\n"},
      {{"--fine-grained-activation-offloading", "--offload-modules", "expert_fc1"},
       "--offload-modules expert_fc1: the model has no experts\n"},
      {{"--min-offloaded-tensor-size", "5"},
       "--min-offloaded-tensor-size: no activations are offloaded\n"},
  });
  const auto parts = [](const Args& modules) {
    Args words{"--fine-grained-activation-offloading", "--offload-modules"};
    words.insert(words.end(), modules.begin(), modules.end());
    return notes(words);
  };
  EXPECT_EQ(parts({"core_attn"}), "");
  EXPECT_EQ(parts({"core_attn", "expert_fc1", "moe_act"}),
            "accepted without effect:\n"
            "  --offload-modules expert_fc1 moe_act: the model has no experts\n");
  EXPECT_THAT(parts({"moe_act"}),
              HasSubstr("  --fine-grained-activation-offloading: --offload-modules names parts of "
                        "experts alone\n"));
}

TEST(Notes, OfSamplesAndTokenizers) {
  const std::string restarts = "with --sft, where attention and positions restart with each ";
  const Args sft{"--sft", "--tokenizer-type", "SFTTokenizer", "--tokenizer-model", "m"};
  const auto with_sft = [&](Args more) {
    more.insert(more.end(), sft.begin(), sft.end());
    return more;
  };
  expect_notes({
      {{"--fim-spm-rate", "0.9", "--fim-no-prefix", "x", "--fim-pad-token", "x"},
       "--fim-spm-rate, --fim-no-prefix, --fim-pad-token: there is no --fim-data\n"},
      {{"--fim-data", "--fim-fragment-rate", "0.5"},
       "--fim-fragment-rate: there is no --fim-split-sample\n"},
      {{"--no-data-sharding"}, "--no-data-sharding: there is no --dataloader-type cyclic\n"},
      {{"--sft-packing-strategy", "bfd"}, "--sft-packing-strategy: there is no --sft\n"},
      {{"--sft-tokenizer-prompt-format", "identity"},
       "--sft-tokenizer-prompt-format: there is no --sft\n"},
      {{"--chat-template", "x"}, "--chat-template: there is no --sft\n"},
      {with_sft({"--reset-position-ids"}), "--reset-position-ids: " + restarts},
      {with_sft({"--reset-attention-mask"}), "--reset-attention-mask: " + restarts},
      {with_sft({"--dataloader-inter-document-masking"}),
       "--dataloader-inter-document-masking: " + restarts},
      {with_sft({"--eod-mask-loss"}), "--eod-mask-loss: with --sft, whose loss is that of answers"},
      {with_sft({"--document-packing-strategy", "bfd"}),
       "--document-packing-strategy: with --sft; use --sft-packing-strategy\n"},
      {{"--tiktoken-pattern", "v2", "--tiktoken-num-special-tokens", "9", "--image-tag-type",
        "nvlm", "--tokenizer-hf-no-include-special-tokens", "--tokenizer-model", "m"},
       "--tokenizer-model, --tiktoken-pattern, --tiktoken-num-special-tokens, --image-tag-type, "
       "--tokenizer-hf-no-include-special-tokens: with --tokenizer-type NullTokenizer\n"},
      {with_sft({"--null-tokenizer-eod-id", "3"}),
       "--null-tokenizer-eod-id: with --tokenizer-type SFTTokenizer\n"},
  });
  EXPECT_EQ(notes({"--no-data-sharding", "--dataloader-type", "cyclic"}), "");
  Args words =
      small({"--vocab-file", "v.json", "--merge-file", "m.txt", "--image-tag-type", "nvlm"});
  std::erase(words, "--tokenizer-type");
  std::erase(words, "NullTokenizer");
  EXPECT_EQ(notes_text(read_run(words).parsed.notes),
            "accepted without effect:\n"
            "  --image-tag-type: with --tokenizer-type GPT2BPETokenizer\n");
}

TEST(Notes, OfResilience) {
  const std::string package = ": there is no --enable-ft-package\n";
  expect_notes({
      {{"--ft-rank-section-timeouts", "step:9"}, "--ft-rank-section-timeouts" + package},
      {{"--ft-rank-out-of-section-timeout", "9"}, "--ft-rank-out-of-section-timeout" + package},
      {{"--ft-num-warmup-iters", "3"}, "--ft-num-warmup-iters" + package},
      {{"--save", "x", "--calc-ft-timeouts"}, "--calc-ft-timeouts" + package},
      {{"--ft-safety-factor", "3"}, "--ft-safety-factor: there is no --calc-ft-timeouts\n"},
  });
}

}  // namespace
}  // namespace megatron
