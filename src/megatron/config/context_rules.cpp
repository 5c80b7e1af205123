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

bool uses_a2a(S s) {
  return cp(s) > 1 && std::ranges::find(s.parallel.cp_comm_type, CpCommType::a2a) !=
                          s.parallel.cp_comm_type.end();
}

std::int64_t heads(S s) { return s.model.num_attention_heads / tp(s); }
/// Returns the query groups of a rank of tp.
std::int64_t groups(S s) { return std::max<std::int64_t>(1, s.model.query_groups() / tp(s)); }

}  // namespace

const std::vector<Rule>& context_rules() {
  static const std::vector<Rule> rules = {
      {{"seq_length", "context_parallel_size", "sequence_parallel", "tensor_model_parallel_size"},
       [](S s) {
         return cp(s) > 1 && s.training.seq_length > 0 &&
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
      {{"cp_comm_type", "context_parallel_size", "num_attention_heads",
        "tensor_model_parallel_size"},
       [](S s) { return uses_a2a(s) && heads(s) % cp(s) != 0; },
       [](S s) {
         std::int64_t most = std::min(cp(s), heads(s));
         while (heads(s) % most != 0) --most;
         return Parts{"--cp-comm-type a2a",
                      "divides attention heads, but the " + text_of(heads(s)) +
                          " heads of a rank are no multiple of " + cp_text(s),
                      "use --cp-comm-type p2p, or --context-parallel-size " + text_of(most)};
       }},
      {{"cp_comm_type", "context_parallel_size", "num_query_groups", "num_attention_heads",
        "tensor_model_parallel_size"},
       [](S s) {
         return uses_a2a(s) && heads(s) % cp(s) == 0 && groups(s) % cp(s) != 0 &&
                cp(s) % groups(s) != 0;
       },
       [](S s) {
         return Parts{"--cp-comm-type a2a",
                      "divides query groups, but of the " + text_of(groups(s)) +
                          " groups of a rank and " + cp_text(s) + " neither divides the other",
                      "use --cp-comm-type p2p"};
       }},
      {{"context_parallel_size", "num_experts"},
       [](S s) { return cp(s) > 1 && s.model.moe.num_experts > 0; },
       [](S s) {
         return Parts{cp_text(s), "excludes --num-experts in this version",
                      "leave --context-parallel-size out, and use --expert-model-parallel-size"};
       }},
  };
  return rules;
}

}  // namespace megatron
