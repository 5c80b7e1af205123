// Tests flags of Megatron-LM that are known here without a setting: accepted, noted or refused.
#include "megatron/config/known_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/small_run.h"
#include "megatron/config/run_settings.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunConfig read_small(const Args& more) { return read_run(small(more)); }

TEST(KnownFlags, AreAcceptedWhenNeutral) {
  for (const Args& words : std::vector<Args>{{"--num-experts", "None"},
                                             {"--num-experts", "0"},
                                             {"--moe-router-topk", "2"},
                                             {"--moe-aux-loss-coeff", "0"},
                                             {"--moe-router-bias-update-rate", "1e-3"},
                                             {"--recompute-modules", "None"},
                                             {"--fp8-recipe", "delayed"},
                                             {"--spec", "local"},
                                             {"--multi-latent-attention=false"},
                                             {"--no-rl-partial-rollouts"},
                                             {"--fim-eod-token", "<|endoftext|>"},
                                             {"--tensor-model-parallel-size", "1"},
                                             {"--train-mode", "pretrain"},
                                             {"--init-method", "None"},
                                             {"--fp8", "None"},
                                             {"--optimizer-offload-fraction", "1.0"},
                                             {"--rl-default-top-k", "-1"}}) {
    EXPECT_EQ(mistake_of(small(words)), "no error") << words[0];
  }
}

TEST(KnownFlags, AreRefusedWithReasonAndFix) {
  EXPECT_THAT(mistake_of(small({"--per-dataset-sequences-path", "f.json"})),
              HasSubstr("--per-dataset-sequences-path: is not in this version\n  fix: "));
  EXPECT_THAT(mistake_of(small({"--use-kitchen"})), HasSubstr("is not in this version"));
  EXPECT_THAT(mistake_of(small({"--train-mode", "finetune"})), HasSubstr("fix: use --sft"));
  EXPECT_THAT(mistake_of(small({"--memory-threshold", "0.8"})), HasSubstr("--memory-budget"));
  EXPECT_THAT(mistake_of(small({"--fp8", "hybrid"})), HasSubstr("use --bf16"));
  EXPECT_THAT(mistake_of(small({"--export-quant-cfg", "fp8", "--modelopt-enabled"})),
              testing::StartsWith("--export-quant-cfg: is not in this version"));
  EXPECT_THAT(mistake_of(small({"--otel-enabled"})), HasSubstr("metrics.jsonl"));
  EXPECT_THAT(mistake_of(small({"--transformer-impl", "nvidia"})),
              HasSubstr("must be one of local, transformer_engine, inference_optimized"));
}

// Without the flag that asks for the feature, they have no effect in Megatron-LM either.
TEST(KnownFlags, ThatTuneAFeatureNobodyAsksForAreNoted) {
  const Args tuning{"--mtp-hybrid-override-pattern",
                    "M",
                    "--fp8-margin",
                    "1",
                    "--muon-momentum",
                    "0.8",
                    "--img-h",
                    "336",
                    "--rl-skip-bos-token",
                    "--mup-width-mult",
                    "2",
                    "--dsa-indexer-topk",
                    "32",
                    "--otel-service-name",
                    "x",
                    "--cache-kv-in-compressed-form"};
  const auto notes = read_small(tuning).parsed.notes;
  EXPECT_EQ(notes.at("without effect: it tunes a feature that no flag of this run asks for").size(),
            9u);
  const std::string bert = notes_text(read_small({"--bert-no-binary-head", "--mask-prob", "0.2",
                                                  "--bert-embedder-type", "huggingface"})
                                          .parsed.notes);
  EXPECT_THAT(bert, HasSubstr("it belongs to BERT, and this run trains gpt"));
  EXPECT_THAT(bert, HasSubstr("it belongs to BERT and T5, and this run trains gpt"));
  EXPECT_THAT(bert, HasSubstr("BERT embeds no texts while it trains"));
  EXPECT_EQ(read_small({"--modelopt-enabled"}).parsed.notes.size(), 1u);
}

TEST(KnownFlags, OfInferenceAreNoted) {
  const std::string notes = notes_text(
      read_small({"--inference-max-requests", "4", "--batch-invariant-mode",
                  "--no-inference-dynamic-batching-prefix-caching", "--enable-chunked-prefill",
                  "--inference-dynamic-batching", "--inference-dynamic-batching-block-size", "256"})
          .parsed.notes);
  EXPECT_THAT(notes, HasSubstr("  --inference-max-requests, --batch-invariant-mode, "
                               "--no-inference-dynamic-batching-prefix-caching: it is for the "
                               "inference engine of `generate`, `batch`, `serve` and `evaluate`"));
  EXPECT_THAT(notes_text(read_small({"--num-speculative-tokens", "4"}).parsed.notes),
              HasSubstr("--num-speculative-tokens: it is for the inference engine of `generate`, "
                        "`batch` and `serve`"));
  EXPECT_THAT(notes, HasSubstr("  --inference-dynamic-batching: requests are always batched"));
  EXPECT_THAT(notes, HasSubstr("a block of the KV cache has 128 positions"));
  EXPECT_THAT(notes, Not(HasSubstr("--enable-chunked-prefill")));
  EXPECT_THAT(mistake_of(small({"--inference-max-requests", "0"})), HasSubstr("at least 1"));
  EXPECT_THAT(
      mistake_of(small({"--inference-dynamic-batching-logprobs-mode", "processed_logprobs"})),
      HasSubstr("log-probabilities are the model's"));
}

// The names of members of TransformerConfig, ModelParallelConfig and
// DistributedDataParallelConfig, as files write them.
TEST(KnownFlags, HaveTheNamesOfMegatronCoresMembers) {
  for (const Args& words : std::vector<Args>{{"--masked-softmax-fusion=true"},
                                             {"--persist-layer-norm=false"},
                                             {"--gradient-accumulation-fusion=true"},
                                             {"--apply-rope-fusion=true"},
                                             {"--fp8-wgrad=true"},
                                             {"--tp-comm-split-ag=true"},
                                             {"--manual-gc-eval=true"},
                                             {"--barrier-with-L1-time=true"},
                                             {"--attention-backend", "transformer_engine"},
                                             {"--moe-token-dropping=false"}}) {
    EXPECT_EQ(mistake_of(small(words)), "no error") << words[0];
  }
}

TEST(KnownFlags, AreNotedOnce) {
  const auto found =
      read_small({"--use-flash-attn", "--no-masked-softmax-fusion", "--attention-backend", "flash",
                  "--local-rank", "0", "--use-flash-attn"});
  EXPECT_EQ(found.parsed.notes.size(), 2u);
  EXPECT_THAT(notes_text(found.parsed.notes),
              HasSubstr("  --use-flash-attn, --no-masked-softmax-fusion, --attention-backend: it "
                        "chooses among"));
}

TEST(KnownFlags, CoverMegatronOnceEach) {
  std::set<std::string> seen;
  std::size_t flags = 0;
  for (const Field& field : run_table().set().fields) {
    EXPECT_TRUE(seen.insert(field.name).second) << field.name << " is declared twice";
    flags += 1 + field.aliases.size();
  }
  EXPECT_GE(flags, 838u);
}

}  // namespace
}  // namespace megatron
