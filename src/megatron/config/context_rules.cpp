// Rules on context parallelism: the sequence and the heads that its ranks share, and, when it is
// hybrid, documents that are divided over ranks by their lengths.
#include <algorithm>
#include <numeric>
#include <optional>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

std::int64_t cp(S s) { return s.parallel->context_parallel_size; }
std::int64_t tp(S s) { return s.parallel->tensor_model_parallel_size; }

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
  const char* type = "";  ///< a value of --cp-comm-type
  std::int64_t ranks = 1;
  Setting ranks_flag = &Parallel::context_parallel_size;
  bool is_whole_cp = true;  ///< all ranks of cp, not groups of them

  Words flag() const { return {&Parallel::cp_comm_type, " ", type}; }
};

std::vector<HeadDivision> head_divisions(S s) {
  std::vector<HeadDivision> all;
  if (uses(s, CpCommType::a2a)) all.push_back({"a2a", cp(s)});
  if (uses(s, CpCommType::a2a_p2p) && has_levels(s))
    all.push_back({"a2a+p2p", levels(s)[0], &Parallel::hierarchical_context_parallel_sizes, false});
  return all;
}

/// Refuses an exchange among whose ranks the heads cannot be divided.
std::optional<Message> wrong_heads(S s) {
  for (const HeadDivision& one : head_divisions(s)) {
    if (heads(s) % one.ranks == 0) continue;
    const std::int64_t fewer = std::gcd(one.ranks, heads(s));
    Words fix = {"use ", &Parallel::cp_comm_type, " p2p"};
    if (one.is_whole_cp)
      fix = fix + Words{", or ", &Parallel::context_parallel_size, " ",
                        largest_divisor(heads(s), one.ranks)};
    else if (fewer > 1)
      fix = fix + Words{", or divide heads among ", fewer};
    return Message{one.flag(),
                   {"divides attention heads, but the ", heads(s),
                    " heads of a rank are no multiple of ", one.ranks_flag, " ", one.ranks},
                   fix,
                   {&Parallel::context_parallel_size, &Model::num_attention_heads,
                    &Parallel::tensor_model_parallel_size}};
  }
  return std::nullopt;
}

/// Refuses an exchange among whose ranks the heads can be divided, but not the groups.
std::optional<Message> wrong_groups(S s) {
  for (const HeadDivision& one : head_divisions(s))
    if (heads(s) % one.ranks == 0 && groups(s) % one.ranks != 0 && one.ranks % groups(s) != 0)
      return Message{one.flag(),
                     {"divides query groups, but of the ", groups(s), " groups of a rank and ",
                      one.ranks_flag, " ", one.ranks, " neither divides the other"},
                     {"use ", &Parallel::cp_comm_type, " p2p"},
                     {&Parallel::context_parallel_size, &Model::num_query_groups,
                      &Model::num_attention_heads, &Parallel::tensor_model_parallel_size}};
  return std::nullopt;
}

std::optional<Message> wrong_levels(S s) {
  if (!uses(s, CpCommType::a2a_p2p) || has_levels(s)) return std::nullopt;
  const std::string fit = levels_of(cp(s));
  return Message{{&Parallel::cp_comm_type, " a2a+p2p"},
                 {"needs two ", &Parallel::hierarchical_context_parallel_sizes,
                  " whose product is ", with_value(&Parallel::context_parallel_size), ", given ",
                  value(&Parallel::hierarchical_context_parallel_sizes)},
                 fit.empty()
                     ? Words{"use ", &Parallel::cp_comm_type, " p2p, or a ",
                             &Parallel::context_parallel_size, " that is a product"}
                     : Words{"use ", &Parallel::hierarchical_context_parallel_sizes, " ", fit}};
}

std::optional<Message> wrong_sequence(S s) {
  const std::int64_t length = s.training->seq_length, unit = sequence_unit(s);
  if (cp(s) == 1 || s.parallel->hybrid_context_parallel || length % unit == 0) return std::nullopt;
  const Words slice = {", of which ", &Parallel::sequence_parallel, " gives each rank of ",
                       &Parallel::tensor_model_parallel_size, " a slice"};
  return Message{&Training::seq_length,
                 Words{length, " is no multiple of ", unit, ": each rank of ",
                       with_value(&Parallel::context_parallel_size), " holds two equal chunks"} +
                     (unit > 2 * cp(s) ? slice : Words()),
                 {"use ", &Training::seq_length, " ", multiples_near(length, unit)}};
}

std::int64_t num_types(S s) { return std::ssize(s.parallel->cp_comm_type); }
bool has_wrong_number_of_types(S s) {
  return (cp(s) > 1 || s.parallel->hybrid_context_parallel) && num_types(s) != 1 &&
         num_types(s) != s.model->num_layers;
}

/// Returns whether layers divide heads, which needs a number of ranks that is known beforehand.
bool divides_heads(S s) {
  return std::ranges::any_of(s.parallel->cp_comm_type, [](CpCommType type) {
    return type == CpCommType::a2a || type == CpCommType::a2a_p2p;
  });
}

}  // namespace

const Rules& context_rules() {
  static const Condition has_two_levels = {
      [](S s) { return uses(s, CpCommType::a2a_p2p); },
      {&Parallel::cp_comm_type, " a2a+p2p and several ranks of ",
       &Parallel::context_parallel_size}};
  static const Rules rules = {
      Rules(wrong_sequence),
      Rules(wrong_levels),
      when(has_levels, tunes({&Parallel::hierarchical_context_parallel_sizes}, has_two_levels)),
      when(without(has_levels),
           needs(&Parallel::hierarchical_context_parallel_sizes, has_two_levels)),
  };
  return rules;
}

const Rules& context_sharding_rules() {
  static const Rules rules = {
      rule(
          has_wrong_number_of_types,
          {&Parallel::cp_comm_type,
           {"names ", num_types, " types, ", &Model::num_layers, " is ", value(&Model::num_layers)},
           "give one for all layers, or one for each",
           {&Parallel::context_parallel_size, &Parallel::hybrid_context_parallel}}),
      Rules(wrong_heads),
      Rules(wrong_groups),
      excludes(
          &Parallel::hybrid_context_parallel, &Moe::num_experts,
          {.why =
               ": routers count over the tokens of a microbatch, which would depend on the layout",
           .fix = {"use ", &Parallel::context_parallel_size}}),
  };
  return rules;
}

const Rules& hybrid_context_rules() {
  static const Condition hybrid = &Parallel::hybrid_context_parallel;
  static const Condition several_samples = {[](S s) { return s.training->micro_batch_size > 1; },
                                            &Training::micro_batch_size};
  static const Rules rules = {
      tunes({&Parallel::max_seqlen_per_dp_cp_rank}, hybrid),
      needs(hybrid, &Parallel::max_seqlen_per_dp_cp_rank,
            {.why = ", the number of tokens that a rank can hold"}),
      needs(hybrid, &Data::dataloader_inter_document_masking,
            {.why = ": it divides the documents of samples, which attention must not cross"}),
      needs(hybrid, &Training::calculate_per_token_loss,
            {.why = ": its microbatches differ in length, so the loss must be the mean over all "
                    "tokens of a step"}),
      refuse(
          {several_samples, hybrid},
          {value(&Training::micro_batch_size), " with ", &Parallel::hybrid_context_parallel, ": ",
           &Parallel::max_seqlen_per_dp_cp_rank, " is the size of a microbatch, in tokens"},
          {"use ", &Training::micro_batch_size, " 1"}),
      refuse({{divides_heads, &Parallel::cp_comm_type}, hybrid},
             {"divides heads, but with ", &Parallel::hybrid_context_parallel,
              " the number of ranks differs from document to document"},
             "use p2p or all_gather"),
      excludes(hybrid, &Data::sft, {.why = ", whose conversations it does not divide"}),
      refuse({is(&Data::dataloader_type, "cyclic"), hybrid},
             {"orders samples by data-parallel rank, but ", &Parallel::hybrid_context_parallel,
              " divides the samples of a step over all ranks"},
             {"use ", &Data::dataloader_type, " single"}),
  };
  return rules;
}

}  // namespace megatron
