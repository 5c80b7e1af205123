// The layouts of experts: how they are divided, sent and dropped, times the layouts of the layers
// around them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layouts/layout.h"
#include "layouts/pairwise.h"

namespace megatron::layouts {

/// The largest layout is ep 8 · etp 2, or ep 8 or cp 4 · tp 2 with two stages or two replicas.
inline constexpr std::int64_t kMaxExpertRanks = 16;

/// Routers that balance by losses, by groups with a bias, top-1 with biases and jitter, one that
/// chooses every expert, and one with jitter whose samples are packed documents.
inline const std::vector<Family>& expert_families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    for (const Family& family : families()) {
      if (family.name == "mixtral" || family.name == "deepseek") found.push_back(family);
    }
    found.push_back({"switch",
                     {"--num-experts", "8", "--moe-router-topk", "1", "--moe-router-pre-softmax",
                      "--moe-aux-loss-coeff", "0.1", "--moe-input-jitter-eps", "0.01"},
                     true});
    found.push_back({"every expert",
                     {"--num-experts", "8", "--moe-router-topk", "8", "--swiglu",
                      "--disable-bias-linear", "--moe-ffn-hidden-size", "16"},
                     true});
    found.push_back({"packed documents",
                     llama({"--num-experts", "8", "--moe-router-topk", "2", "--moe-ffn-hidden-size",
                            "16", "--moe-router-load-balancing-type", "aux_loss", "seq_aux_loss",
                            "--moe-aux-loss-coeff", "0.1", "0.2", "--moe-z-loss-coeff", "0.01",
                            "--moe-input-jitter-eps", "0.01", "--dataloader-inter-document-masking",
                            "--eod-mask-loss"}),
                     true});
    return found;
  }();
  return all;
}

/// What happens to tokens beyond an expert's capacity.
struct DropPolicy {
  std::string name;
  std::vector<std::string> flags;
};

inline const std::vector<DropPolicy>& drop_policies() {
  static const std::vector<DropPolicy> all = {
      {"none", {}},
      {"probs", {"--moe-expert-capacity-factor", "1.0"}},
      {"position", {"--moe-expert-capacity-factor", "0.8", "--moe-token-drop-policy", "position"}},
      {"padded", {"--moe-expert-capacity-factor", "1.2", "--moe-pad-expert-input-to-capacity"}}};
  return all;
}

/// Each schedule on two stages, and none.
inline const std::vector<Pipeline>& expert_pipelines() {
  static const std::vector<Pipeline> all = {{},
                                            {2, 1, "1f1b"},
                                            {2, 1, "gpipe"},
                                            {2, 2, "interleaved"},
                                            {2, 1, "zb-h1"},
                                            {2, 1, "zb-h2"},
                                            {2, 0, "zb-v"},
                                            {2, 0, "dualpipe-v"},
                                            {2, 1, "combined-1f1b"}};
  return all;
}

enum class TensorParallelism : std::int64_t { none, plain, sequence };

struct ExpertLayout {
  std::size_t family = 0;  ///< index into expert_families()
  std::int64_t ep = 1, etp = 1, replicas = 1;
  TensorParallelism tensor = TensorParallelism::none;
  std::size_t pipeline = 0;  ///< index into expert_pipelines()
  bool distributed_optimizer = false;
  std::size_t dispatcher = 0;  ///< index into kDispatchers
  std::size_t drops = 0;       ///< index into drop_policies()
  std::int64_t cp = 1;

  std::int64_t tp() const { return tensor == TensorParallelism::none ? 1 : 2; }
  /// Returns the ranks of one pipeline stage: those of the experts, or of tp and cp.
  std::int64_t stage_size() const { return std::max(ep * etp * replicas, tp() * cp); }
  std::int64_t world_size() const { return stage_size() * expert_pipelines()[pipeline].ranks; }

  std::vector<std::string> flags() const {
    std::vector<std::string> all{"--tensor-model-parallel-size",  std::to_string(tp()),
                                 "--context-parallel-size",       std::to_string(cp),
                                 "--expert-model-parallel-size",  std::to_string(ep),
                                 "--expert-tensor-parallel-size", std::to_string(etp),
                                 "--moe-token-dispatcher-type",   kDispatchers.at(dispatcher)};
    if (tensor == TensorParallelism::sequence) all.emplace_back("--sequence-parallel");
    if (distributed_optimizer) all.emplace_back("--use-distributed-optimizer");
    const std::vector<std::string> stages = expert_pipelines()[pipeline].flags();
    all.insert(all.end(), stages.begin(), stages.end());
    return all;
  }

  std::string text() const {
    std::string words = expert_families()[family].name + ", drops " + drop_policies()[drops].name +
                        ", ranks " + std::to_string(world_size());
    for (const std::string& flag : flags()) words += " " + flag;
    return words;
  }
};

/// Returns the choices of a layout, one number each.
inline std::array<std::int64_t, 10> choices(const ExpertLayout& l) {
  return {static_cast<std::int64_t>(l.family),
          l.ep,
          l.etp,
          l.replicas,
          static_cast<std::int64_t>(l.tensor),
          static_cast<std::int64_t>(l.pipeline),
          l.distributed_optimizer,
          static_cast<std::int64_t>(l.dispatcher),
          static_cast<std::int64_t>(l.drops),
          l.cp};
}

/// Returns every combination of at most kMaxExpertRanks ranks.
inline std::vector<ExpertLayout> all_expert_layouts() {
  std::vector<ExpertLayout> all;
  const auto count_of = [](const auto& table) { return static_cast<std::int64_t>(table.size()); };
  const std::array<std::int64_t, 10> sizes{count_of(expert_families()),
                                           4,
                                           2,
                                           2,
                                           3,
                                           count_of(expert_pipelines()),
                                           2,
                                           count_of(kDispatchers),
                                           count_of(drop_policies()),
                                           3};
  for (std::int64_t number = 0;; ++number) {
    std::array<std::int64_t, 10> digits{};
    std::int64_t rest = number;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      digits.at(i) = rest % sizes.at(i);
      rest /= sizes.at(i);
    }
    if (rest > 0) return all;
    const ExpertLayout layout{.family = static_cast<std::size_t>(digits[0]),
                              .ep = std::int64_t{1} << digits[1],
                              .etp = 1 + digits[2],
                              .replicas = 1 + digits[3],
                              .tensor = static_cast<TensorParallelism>(digits[4]),
                              .pipeline = static_cast<std::size_t>(digits[5]),
                              .distributed_optimizer = digits[6] == 1,
                              .dispatcher = static_cast<std::size_t>(digits[7]),
                              .drops = static_cast<std::size_t>(digits[8]),
                              .cp = std::int64_t{1} << digits[9]};
    if (layout.world_size() <= kMaxExpertRanks) all.push_back(layout);
  }
}

/// Returns a few layouts that cover every pair of choices, with as few ranks as possible.
inline std::vector<ExpertLayout> pairwise_expert_layouts() {
  return cover_pairs(
      all_expert_layouts(),
      static_cast<std::array<std::int64_t, 10> (*)(const ExpertLayout&)>(choices),
      [](const ExpertLayout& one, const std::vector<ExpertLayout>&) { return -one.world_size(); });
}

}  // namespace megatron::layouts
