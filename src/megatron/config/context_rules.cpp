// Rules on context parallelism: the sequence and the heads that its ranks share.
#include <algorithm>
#include <numeric>
#include <optional>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using S = const Settings&;
using Parts = UserError::Parts;

std::int64_t cp(S s) { return s.parallel->context_parallel_size; }
std::int64_t tp(S s) { return s.parallel->tensor_model_parallel_size; }
std::string cp_text(S s) { return "--context-parallel-size " + text_of(cp(s)); }

/// Returns the number that a sequence must be a multiple of: each rank of cp has two chunks, and
/// with sequence parallelism each rank of tp an equal slice of these.
std::int64_t sequence_unit(S s) {
  return cp(s) * (s.parallel->sequence_parallel ? std::lcm(std::int64_t{2}, tp(s)) : 2);
}

bool uses(S s, CpCommType type) {
  return cp(s) > 1 &&
         std::ranges::find(s.parallel->cp_comm_type, type) != s.parallel->cp_comm_type.end();
}

const std::vector<std::int64_t>& levels(S s) {
  return s.parallel->hierarchical_context_parallel_sizes;
}
/// Returns whether --hierarchical-context-parallel-sizes are two levels of cp.
bool has_levels(S s) { return levels(s).size() == 2 && levels(s)[0] * levels(s)[1] == cp(s); }

/// Returns "2 4", two levels of cp, or none if there are none.
std::string levels_of(std::int64_t size) {
  for (std::int64_t inner = 2; inner * inner <= size; ++inner)
    if (size % inner == 0) return text_of(inner) + " " + text_of(size / inner);
  return "";
}

std::int64_t heads(S s) { return s.model->num_attention_heads / tp(s); }
/// Returns the query groups of a rank of tp.
std::int64_t groups(S s) { return std::max<std::int64_t>(1, s.model->query_groups() / tp(s)); }

/// An exchange that divides heads among `ranks` ranks.
struct HeadDivision {
  const char* type = "";  ///< "--cp-comm-type a2a"
  std::int64_t ranks = 1;
  std::string ranks_text;    ///< with the flag that sets them
  bool is_whole_cp = false;  ///< all ranks of cp, not groups of them
};

std::vector<HeadDivision> head_divisions(S s) {
  std::vector<HeadDivision> all;
  if (uses(s, CpCommType::a2a)) all.push_back({"--cp-comm-type a2a", cp(s), cp_text(s), true});
  if (uses(s, CpCommType::a2a_p2p) && has_levels(s))
    all.push_back({"--cp-comm-type a2a+p2p", levels(s)[0],
                   "--hierarchical-context-parallel-sizes " + text_of(levels(s)[0]), false});
  return all;
}

/// Returns the first exchange among whose ranks the heads cannot be divided.
std::optional<HeadDivision> indivisible_heads(S s) {
  for (const HeadDivision& one : head_divisions(s))
    if (heads(s) % one.ranks != 0) return one;
  return std::nullopt;
}

/// Returns the first exchange among whose ranks the heads can be divided, but not the groups.
std::optional<HeadDivision> indivisible_groups(S s) {
  for (const HeadDivision& one : head_divisions(s))
    if (heads(s) % one.ranks == 0 && groups(s) % one.ranks != 0 && one.ranks % groups(s) != 0)
      return one;
  return std::nullopt;
}

Parts heads_message(S s) {
  const HeadDivision division = *indivisible_heads(s);
  std::int64_t most = std::min(division.ranks, heads(s));
  while (heads(s) % most != 0) --most;
  const std::int64_t fewer = std::gcd(division.ranks, heads(s));
  std::string fix = "use --cp-comm-type p2p";
  if (division.is_whole_cp) {
    fix += ", or --context-parallel-size " + text_of(most);
  } else if (fewer > 1) {
    fix += ", or divide heads among " + text_of(fewer);
  }
  return {division.type,
          "divides attention heads, but the " + text_of(heads(s)) +
              " heads of a rank are no multiple of " + division.ranks_text,
          fix};
}

Parts groups_message(S s) {
  const HeadDivision division = *indivisible_groups(s);
  return {division.type,
          "divides query groups, but of the " + text_of(groups(s)) + " groups of a rank and " +
              division.ranks_text + " neither divides the other",
          "use --cp-comm-type p2p"};
}

Parts levels_message(S s) {
  std::string given;
  for (const std::int64_t size : levels(s)) given += (given.empty() ? "" : " ") + text_of(size);
  const std::string fit = levels_of(cp(s));
  return {"--cp-comm-type a2a+p2p",
          "needs two --hierarchical-context-parallel-sizes whose product is " + cp_text(s) +
              ", given " + (given.empty() ? "none" : given),
          fit.empty() ? "use --cp-comm-type p2p, or a --context-parallel-size that is a product"
                      : "use --hierarchical-context-parallel-sizes " + fit};
}

}  // namespace

const std::vector<Rule>& context_rules() {
  static const std::vector<Rule> rules = {
      {{"seq_length", "context_parallel_size", "hybrid_context_parallel", "sequence_parallel",
        "tensor_model_parallel_size"},
       [](S s) {
         return cp(s) > 1 && !s.parallel->hybrid_context_parallel && s.training->seq_length > 0 &&
                s.training->seq_length % sequence_unit(s) != 0;
       },
       [](S s) {
         const std::int64_t unit = sequence_unit(s);
         return Parts{"--seq-length",
                      text_of(s.training->seq_length) + " is no multiple of " + text_of(unit) +
                          ": each rank of " + cp_text(s) + " holds two equal chunks" +
                          (unit > 2 * cp(s) ? ", of which --sequence-parallel gives each rank of "
                                              "--tensor-model-parallel-size a slice"
                                            : ""),
                      "use --seq-length " + multiples_near(s.training->seq_length, unit)};
       }},
      {{"cp_comm_type", "hierarchical_context_parallel_sizes", "context_parallel_size"},
       [](S s) { return uses(s, CpCommType::a2a_p2p) && !has_levels(s); },
       levels_message},
      {{"cp_comm_type", "hierarchical_context_parallel_sizes", "context_parallel_size"},
       [](S s) { return !levels(s).empty() && !uses(s, CpCommType::a2a_p2p); },
       [](S) {
         return Parts{"--hierarchical-context-parallel-sizes",
                      "has an effect only with --cp-comm-type a2a+p2p and several ranks of "
                      "--context-parallel-size",
                      "add them, or leave it out"};
       }},
  };
  return rules;
}

const std::vector<Rule>& context_sharding_rules() {
  static const std::vector<Rule> rules = {
      {{"cp_comm_type", "context_parallel_size", "hybrid_context_parallel", "num_layers"},
       [](S s) {
         const auto types = std::int64_t(s.parallel->cp_comm_type.size());
         return (cp(s) > 1 || s.parallel->hybrid_context_parallel) && types != 1 &&
                types != s.model->num_layers;
       },
       [](S s) {
         return Parts{"--cp-comm-type",
                      "names " + text_of(std::int64_t(s.parallel->cp_comm_type.size())) +
                          " types, --num-layers is " + text_of(s.model->num_layers),
                      "give one for all layers, or one for each"};
       }},
      {{"cp_comm_type", "context_parallel_size", "num_attention_heads",
        "hierarchical_context_parallel_sizes", "tensor_model_parallel_size"},
       [](S s) { return indivisible_heads(s).has_value(); },
       heads_message},
      {{"cp_comm_type", "context_parallel_size", "num_query_groups", "num_attention_heads",
        "hierarchical_context_parallel_sizes", "tensor_model_parallel_size"},
       [](S s) { return indivisible_groups(s).has_value(); },
       groups_message},
      {{"hybrid_context_parallel", "num_experts"},
       [](S s) { return s.parallel->hybrid_context_parallel && s.model->moe.num_experts > 0; },
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
