// Rules on context parallelism: the sequence and the heads that its ranks share.
#include <algorithm>
#include <numeric>

#include "megatron/config/rule.h"

namespace megatron {
namespace {

using S = const Settings&;
using Parts = UserError::Parts;

std::int64_t cp(S s) { return s.parallel.context_parallel_size; }
std::int64_t tp(S s) { return s.parallel.tensor_model_parallel_size; }
std::string cp_text(S s) { return "--context-parallel-size " + text_of(cp(s)); }

/// Returns the number that a sequence must be a multiple of: each rank of cp has two chunks, and
/// with sequence parallelism each rank of tp an equal slice of these.
std::int64_t sequence_unit(S s) {
  return cp(s) * (s.parallel.sequence_parallel ? std::lcm(std::int64_t{2}, tp(s)) : 2);
}

bool uses(S s, CpCommType type) {
  return cp(s) > 1 &&
         std::ranges::find(s.parallel.cp_comm_type, type) != s.parallel.cp_comm_type.end();
}

/// Returns whether --hierarchical-context-parallel-sizes are two levels of cp.
bool has_levels(S s) {
  const auto& sizes = s.parallel.hierarchical_context_parallel_sizes;
  return sizes.size() == 2 && sizes[0] * sizes[1] == cp(s);
}

/// Returns the number of ranks that a layer divides heads among; 1 if none does.
std::int64_t head_ranks(S s) {
  if (uses(s, CpCommType::a2a)) return cp(s);
  return uses(s, CpCommType::a2a_p2p) && has_levels(s)
             ? s.parallel.hierarchical_context_parallel_sizes[0]
             : 1;
}
std::string head_type(S s) {
  return uses(s, CpCommType::a2a) ? "--cp-comm-type a2a" : "--cp-comm-type a2a+p2p";
}
std::string head_ranks_text(S s) {
  return uses(s, CpCommType::a2a)
             ? cp_text(s)
             : "--hierarchical-context-parallel-sizes " + text_of(head_ranks(s));
}

/// Returns "2 4", two levels of cp, or none if there are none.
std::string levels_of(std::int64_t size) {
  for (std::int64_t inner = 2; inner * inner <= size; ++inner)
    if (size % inner == 0) return text_of(inner) + " " + text_of(size / inner);
  return "";
}

std::int64_t heads(S s) { return s.model.num_attention_heads / tp(s); }
/// Returns the query groups of a rank of tp.
std::int64_t groups(S s) { return std::max<std::int64_t>(1, s.model.query_groups() / tp(s)); }

}  // namespace

const std::vector<Rule>& context_rules() {
  static const std::vector<Rule> rules = {
      {{"seq_length", "context_parallel_size", "hybrid_context_parallel", "sequence_parallel",
        "tensor_model_parallel_size"},
       [](S s) {
         return cp(s) > 1 && !s.parallel.hybrid_context_parallel && s.training.seq_length > 0 &&
                s.training.seq_length % sequence_unit(s) != 0;
       },
       [](S s) {
         const std::int64_t unit = sequence_unit(s);
         return Parts{"--seq-length",
                      text_of(s.training.seq_length) + " is no multiple of " + text_of(unit) +
                          ": each rank of " + cp_text(s) + " holds two equal chunks" +
                          (unit > 2 * cp(s) ? ", of which --sequence-parallel gives each rank of "
                                              "--tensor-model-parallel-size a slice"
                                            : ""),
                      "use --seq-length " + multiples_near(s.training.seq_length, unit)};
       }},
  };
  return rules;
}

const std::vector<Rule>& context_sharding_rules() {
  static const std::vector<Rule> rules = {
      {{"cp_comm_type", "context_parallel_size", "num_layers"},
       [](S s) {
         const auto types = std::int64_t(s.parallel.cp_comm_type.size());
         return cp(s) > 1 && types != 1 && types != s.model.num_layers;
       },
       [](S s) {
         return Parts{"--cp-comm-type",
                      "names " + text_of(std::int64_t(s.parallel.cp_comm_type.size())) +
                          " types, --num-layers is " + text_of(s.model.num_layers),
                      "give one for all layers, or one for each"};
       }},
      {{"cp_comm_type", "hierarchical_context_parallel_sizes", "context_parallel_size"},
       [](S s) { return uses(s, CpCommType::a2a_p2p) && !has_levels(s); },
       [](S s) {
         std::string sizes;
         for (const std::int64_t size : s.parallel.hierarchical_context_parallel_sizes)
           sizes += (sizes.empty() ? "" : " ") + text_of(size);
         const std::string levels = levels_of(cp(s));
         return Parts{"--cp-comm-type a2a+p2p",
                      "needs two --hierarchical-context-parallel-sizes whose product is " +
                          cp_text(s) + ", given " + (sizes.empty() ? "none" : sizes),
                      levels.empty() ? "use --cp-comm-type p2p, or a --context-parallel-size that "
                                       "is a product"
                                     : "use --hierarchical-context-parallel-sizes " + levels};
       }},
      {{"cp_comm_type", "context_parallel_size", "num_attention_heads",
        "hierarchical_context_parallel_sizes", "tensor_model_parallel_size"},
       [](S s) { return heads(s) % head_ranks(s) != 0; },
       [](S s) {
         std::int64_t most = std::min(head_ranks(s), heads(s));
         while (heads(s) % most != 0) --most;
         return Parts{head_type(s),
                      "divides attention heads, but the " + text_of(heads(s)) +
                          " heads of a rank are no multiple of " + head_ranks_text(s),
                      uses(s, CpCommType::a2a)
                          ? "use --cp-comm-type p2p, or --context-parallel-size " + text_of(most)
                          : "use --cp-comm-type p2p, or divide heads among " +
                                text_of(std::gcd(head_ranks(s), heads(s)))};
       }},
      {{"cp_comm_type", "context_parallel_size", "num_query_groups", "num_attention_heads",
        "hierarchical_context_parallel_sizes", "tensor_model_parallel_size"},
       [](S s) {
         const std::int64_t ranks = head_ranks(s);
         return heads(s) % ranks == 0 && groups(s) % ranks != 0 && ranks % groups(s) != 0;
       },
       [](S s) {
         return Parts{head_type(s),
                      "divides query groups, but of the " + text_of(groups(s)) +
                          " groups of a rank and " + head_ranks_text(s) +
                          " neither divides the other",
                      "use --cp-comm-type p2p"};
       }},
      {{"hybrid_context_parallel", "num_experts"},
       [](S s) { return s.parallel.hybrid_context_parallel && s.model.moe.num_experts > 0; },
       [](S) {
         return Parts{
             "--hybrid-context-parallel",
             "excludes --num-experts: routers count over the tokens of a microbatch, which "
             "would depend on the layout",
             "use --context-parallel-size"};
       }},
  };
  return rules;
}

}  // namespace megatron
