#include "layouts/layout.h"

#include <algorithm>

#include "layouts/pairwise.h"
#include "support/temporary_folder.h"

namespace megatron::layouts {

std::vector<std::string> Pipeline::flags() const {
  if (ranks == 1) return {};
  std::vector<std::string> all{"--pipeline-model-parallel-size", std::to_string(ranks),
                               "--pipeline-schedule", schedule};
  if (chunks > 1)
    all.insert(all.end(), {"--num-virtual-stages-per-pipeline-rank", std::to_string(chunks)});
  if (!stages.empty()) all.insert(all.end(), {"--pipeline-model-parallel-layout", stages});
  return all;
}

const std::vector<Pipeline>& pipelines() {
  static const std::vector<Pipeline> all = {{},
                                            {2, 1, "1f1b"},
                                            {4, 1, "1f1b"},
                                            {4, 1, "gpipe"},
                                            {2, 2, "interleaved"},
                                            {4, 1, "zb-h1"},
                                            {2, 1, "zb-h2"},
                                            {2, 0, "zb-v"},
                                            {2, 0, "dualpipe-v"},
                                            {2, 0, "auto"},
                                            {2, 1, "combined-1f1b"},
                                            {2, 2, "combined-1f1b"},
                                            {4, 1, "1f1b", "E|ttt|t|L"},
                                            {2, 0, "zb-v", "|Ettt|tL|"}};
  return all;
}

bool Layout::is_valid() const {
  if (world_size() > kMaxRanks) return false;
  if ((sequence_parallel && tp == 1) || (tp_comm_overlap && !sequence_parallel)) return false;
  if (tp * dp % (ep * (etp > 0 ? etp : tp)) != 0) return false;
  return !overlap_param_gather || (distributed_optimizer && overlap_grad_reduce);
}

std::vector<std::string> Layout::flags() const {
  std::vector<std::string> all{"--tensor-model-parallel-size", std::to_string(tp)};
  if (sequence_parallel) all.emplace_back("--sequence-parallel");
  if (tp_comm_overlap) all.emplace_back("--tp-comm-overlap");
  if (distributed_optimizer) all.emplace_back("--use-distributed-optimizer");
  if (overlap_grad_reduce)
    all.insert(all.end(), {"--overlap-grad-reduce", "--ddp-bucket-size", "2000"});
  if (overlap_param_gather) all.emplace_back("--overlap-param-gather");
  if (ep > 1 || etp > 0)
    all.insert(all.end(), {"--expert-model-parallel-size", std::to_string(ep),
                           "--moe-token-dispatcher-type", kDispatchers[dispatcher]});
  if (etp > 0) all.insert(all.end(), {"--expert-tensor-parallel-size", std::to_string(etp)});
  const std::vector<std::string> stages = pipelines()[pipeline].flags();
  all.insert(all.end(), stages.begin(), stages.end());
  return all;
}

std::string Layout::text() const {
  std::string words = "dp " + std::to_string(dp);
  for (const std::string& flag : flags()) words += " " + flag;
  return words;
}

Flags llama(const Flags& more) {
  Flags all{"--normalization",
            "RMSNorm",
            "--position-embedding-type",
            "rope",
            "--swiglu",
            "--disable-bias-linear",
            "--untie-embeddings-and-output-weights"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Flags latents(const Flags& more) {
  Flags all = llama({"--multi-latent-attention", "--kv-lora-rank", "10", "--qk-head-dim", "6",
                     "--qk-pos-emb-head-dim", "4", "--v-head-dim", "5"});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::int64_t Family::num_depths() const {
  const auto value_of = [this](const char* flag) -> std::string {
    const auto found = std::ranges::find(flags, flag);
    return found == flags.end() ? "" : found[1];
  };
  const std::string number = value_of("--mtp-num-layers");
  return number.empty() ? std::ranges::count(value_of("--hybrid-layer-pattern"), '/')
                        : std::stoi(number);
}

bool Family::has_one_sequence() const {
  return model != "t5" && std::ranges::count(flags, "rank") == 0 && !is_recurrent();
}

bool Family::is_recurrent() const {
  return std::ranges::any_of(flags, [](const std::string& flag) {
    return flag.starts_with("--mamba-") || flag.starts_with("--linear-");
  });
}

Flags Family::run_flags(const Flags& more) const {
  Flags all = common_flags();
  all.front() = model;
  for (const Flags& part : {flags, more}) all.insert(all.end(), part.begin(), part.end());
  const auto layout = std::ranges::find(all, "--pipeline-model-parallel-layout");
  // The depths stand behind the last layer, in its stage, and the output in a later one.
  if (layout != all.end())
    layout[1].insert(layout[1].rfind('t') + 1, static_cast<std::size_t>(num_depths()), 'm');
  return all;
}

Flags bert(const Flags& more) {
  static const TemporaryFolder folder;
  static const std::string vocabulary = [] {
    std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (int word = 0; word < 54; ++word)
      text += (word % 4 == 1 ? "##w" : "w") + std::to_string(word) + '\n';
    return folder.write("vocab.txt", text);
  }();
  Flags flags{"--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", vocabulary};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Flags t5(const Flags& more) {
  Flags all{"--decoder-seq-length", "12", "--vocab-extra-ids", "8"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"gpt", {"--eod-mask-loss"}},
      {"llama", llama({"--group-query-attention", "--num-query-groups", "2"})},
      {"qwen",
       {"--normalization", "RMSNorm", "--position-embedding-type", "rope", "--swiglu",
        "--disable-bias-linear", "--add-qkv-bias", "--qk-layernorm", "--group-query-attention",
        "--num-query-groups", "1", "--calculate-per-token-loss", "--eod-mask-loss"}},
      {"bloom",
       {"--position-embedding-type", "alibi", "--apply-residual-connection-post-layernorm",
        "--window-size", "6,0"}},
      {"mixtral",
       llama({"--num-experts", "8", "--moe-router-topk", "3", "--moe-ffn-hidden-size", "24",
              "--moe-router-load-balancing-type", "aux_loss", "seq_aux_loss",
              "--moe-aux-loss-coeff", "0.1", "0.2", "--moe-z-loss-coeff", "0.01"}),
       true},
      {"deepseek",
       llama({"--num-experts",
              "8",
              "--moe-layer-freq",
              "([0]+[1]*3)",
              "--moe-router-topk",
              "2",
              "--moe-ffn-hidden-size",
              "16",
              "--moe-shared-expert-intermediate-size",
              "16",
              "--moe-router-score-function",
              "sigmoid",
              "--moe-router-num-groups",
              "4",
              "--moe-router-group-topk",
              "2",
              "--moe-router-topk-scaling-factor",
              "2.5",
              "--moe-router-enable-expert-bias",
              "--moe-router-load-balancing-type",
              "seq_aux_loss",
              "--moe-aux-loss-coeff",
              "0.05",
              "--calculate-per-token-loss",
              "--eod-mask-loss"}),
       true},
      {"mla",
       latents({"--qk-layernorm", "--q-lora-rank", "12", "--rotary-scaling-factor", "4",
                "--original-max-position-embeddings", "8", "--mscale-all-dim", "0.5",
                "--num-experts", "4", "--moe-layer-freq", "([0]+[1]*3)", "--moe-router-topk", "2",
                "--moe-ffn-hidden-size", "16"}),
       true},
      {"olmoe",
       llama({"--qk-layernorm", "--qk-layernorm-scope", "all_heads", "--clip-qkv", "1.5",
              "--num-experts", "8", "--moe-router-topk", "3", "--moe-router-pre-softmax",
              "--moe-ffn-hidden-size", "24", "--moe-aux-loss-coeff", "0.1"}),
       true},
      {"gpt-oss",
       {"--normalization", "RMSNorm", "--position-embedding-type", "rope", "--quick-geglu",
        "--activation-func-clamp-value", "0.2", "--glu-linear-offset", "1", "--num-experts", "8",
        "--moe-router-topk", "4", "--moe-ffn-hidden-size", "24", "--moe-aux-loss-coeff", "0.1"},
       true},
      {"sinks", llama({"--softmax-type",
                       "learnable",
                       "--init-method-std",
                       "0.3",
                       "--window-size",
                       "6,0",
                       "--window-attn-skip-freq",
                       "2",
                       "--group-query-attention",
                       "--num-query-groups",
                       "2",
                       "--norm-placement",
                       "sandwich",
                       "--attn-logit-softcapping",
                       "2",
                       "--final-logit-softcapping",
                       "3",
                       "--embedding-multiplier",
                       "5",
                       "--attn-temperature-scale",
                       "0.3",
                       "--attn-temperature-floor",
                       "4",
                       "--attn-temperature-all-layers"})},
      {"chunks", llama({"--attention-chunk-size",
                        "6",
                        "--window-attn-skip-freq",
                        "2",
                        "--rotary-base-local",
                        "100",
                        "--no-rope-freq",
                        "4",
                        "--attn-temperature-scale",
                        "0.3",
                        "--attn-temperature-floor",
                        "4",
                        "--attention-output-gate",
                        "--qk-l2-norm",
                        "--qk-layernorm",
                        "--qk-layernorm-scope",
                        "each_head",
                        "--parallel-residual",
                        "--share-block-norm",
                        "--residual-multiplier",
                        "0.5",
                        "--logit-scale",
                        "0.7",
                        "--add-output-bias"})},
      {"switch",
       {"--num-experts", "4", "--moe-router-topk", "1", "--moe-router-pre-softmax",
        "--moe-expert-capacity-factor", "1.0", "--moe-pad-expert-input-to-capacity",
        "--moe-aux-loss-coeff", "0.1", "--moe-input-jitter-eps", "0.01"},
       true},
      {"bert", bert(), false, "bert"},
      {"post-norm bert",
       bert({"--norm-placement", "post", "--embedding-norm", "--position-offset", "2",
             "--num-tokentypes", "1", "--bert-no-binary-head", "--mask-prob", "0.3",
             "--untie-embeddings-and-output-weights"}),
       false, "bert"},
      {"bert of classes", bert({"--task", "classify", "--num-classes", "3"}), false, "bert"},
      {"bert of choices", bert({"--task", "rank"}), false, "bert"},
      {"mtp", llama({"--mtp-num-layers", "2", "--mtp-loss-scaling-factor", "0.6",
                     "--group-query-attention", "--num-query-groups", "2", "--eod-mask-loss"})},
      {"frozen", {"--freeze", "^embedding", "--freeze", "layers[.]0[.]"}},
      {"hybrid",
       llama({"--hybrid-layer-pattern", "*-*E/*E", "--num-experts", "4", "--moe-router-topk", "2",
              "--moe-ffn-hidden-size", "24", "--moe-aux-loss-coeff", "0.1"}),
       true, "hybrid"},
      {"mamba",
       llama({"--hybrid-layer-pattern", "M-M*/M-", "--mamba-state-dim", "6", "--mamba-head-dim",
              "5", "--mamba-num-heads", "8", "--mamba-num-groups", "2"}),
       false, "hybrid"},
      {"gated delta nets",
       llama({"--experimental-attention-variant", "gated_delta_net", "--linear-attention-freq", "4",
              "--linear-key-head-dim", "6", "--linear-value-head-dim", "5",
              "--linear-num-key-heads", "2", "--linear-num-value-heads", "8",
              "--apply-layernorm-1p", "--reset-attention-mask"})},
      {"t5", t5({"--num-layers", "2", "--position-embedding-type", "relative"}), false, "t5"},
      {"t5 with learned positions", t5({"--num-layers", "1", "--decoder-num-layers", "3"}), false,
       "t5"},
  };
  return all;
}

std::vector<std::string> common_flags() {
  return {"gpt",
          "--num-layers",
          "4",
          "--hidden-size",
          "32",
          "--num-attention-heads",
          "4",
          "--ffn-hidden-size",
          "48",
          "--seq-length",
          "16",
          "--vocab-size",
          "61",
          "--tokenizer-type",
          "NullTokenizer",
          "--mock-data",
          "--micro-batch-size",
          "1",
          "--global-batch-size",
          "8",
          "--num-workers",
          "0",
          "--make-vocab-size-divisible-by",
          "8",
          "--lr",
          "1e-2",
          "--seed",
          "77",
          "--eval-iters",
          "0"};
}

const Flags& one_sgd_step() {
  static const Flags flags{"--optimizer", "sgd",   "--sgd-momentum", "0",
                           "--clip-grad", "0",     "--weight-decay", "0",
                           "--lr",        "16384", "--train-iters",  "1"};
  return flags;
}

namespace {

/// Appends the layouts of experts for one layout of the other layers. They take the dispatchers by
/// turns.
void add_expert_layouts(std::size_t family, const Layout& dense, std::vector<Case>& cases) {
  if (dense.tp_comm_overlap) return;
  for (const std::int64_t ep : {1, 2, 4}) {
    for (const std::int64_t etp : {0, 1, 2}) {
      Layout layout = dense;
      layout.ep = ep;
      layout.etp = etp;
      layout.dispatcher = cases.size() % kDispatchers.size();
      if (etp != layout.tp && layout.is_valid()) cases.push_back({family, layout});
    }
  }
}

/// Returns the choices of a case, one number each.
std::array<std::int64_t, 12> choices(const Case& one) {
  const Layout& l = one.layout;
  return {static_cast<std::int64_t>(one.family),
          l.tp,
          l.dp,
          l.sequence_parallel,
          l.tp_comm_overlap,
          l.distributed_optimizer,
          l.overlap_grad_reduce,
          l.overlap_param_gather,
          pipelines()[l.pipeline].shape(),
          l.ep,
          l.etp,
          static_cast<std::int64_t>(l.dispatcher)};
}

}  // namespace

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (std::size_t family = 0; family < families().size(); ++family) {
    for (const std::int64_t tp : kDegrees) {
      for (const std::int64_t dp : kDegrees) {
        for (unsigned bits = 0; bits < 32; ++bits) {
          const auto bit = [bits](unsigned place) { return (bits >> place & 1) != 0; };
          for (std::size_t pipeline = 0; pipeline < pipelines().size(); ++pipeline) {
            const Layout layout{tp, dp, bit(0), bit(1), bit(2), bit(3), bit(4), pipeline};
            if (!layout.is_valid()) continue;
            if (families()[family].has_experts) {
              add_expert_layouts(family, layout, cases);
            } else {
              cases.push_back({family, layout});
            }
          }
        }
      }
    }
  }
  return cases;
}

std::vector<Case> pairwise_cases(std::int64_t max_ranks) {
  std::vector<Case> all = all_cases();
  std::erase_if(all, [&](const Case& one) { return one.layout.world_size() > max_ranks; });
  return cover_pairs(all, choices, [](const Case& one, const std::vector<Case>& chosen) {
    return -std::ranges::count_if(
        chosen, [&](const Case& other) { return other.layout.pipeline == one.layout.pipeline; });
  });
}

}  // namespace megatron::layouts
