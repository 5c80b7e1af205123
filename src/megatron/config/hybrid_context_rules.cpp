// Rules on hybrid context parallelism: documents are divided over ranks by their lengths.
#include <algorithm>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;
using Parts = UserError::Parts;

constexpr const char* kFlag = "--hybrid-context-parallel";

bool is_hybrid(S s) { return s.parallel->hybrid_context_parallel; }

/// Returns whether layers divide heads, which needs a number of ranks that is known beforehand.
bool divides_heads(S s) {
  return std::ranges::any_of(s.parallel->cp_comm_type, [](CpCommType type) {
    return type == CpCommType::a2a || type == CpCommType::a2a_p2p;
  });
}

}  // namespace

const std::vector<Rule>& hybrid_context_rules() {
  static const std::vector<Rule> rules = {
      {{"hybrid_context_parallel", "max_seqlen_per_dp_cp_rank"},
       [](S s) { return is_hybrid(s) && s.parallel->max_seqlen_per_dp_cp_rank < 1; },
       [](S) {
         return Parts{kFlag, "needs the number of tokens that a rank can hold",
                      "add --max-seqlen-per-dp-cp-rank"};
       }},
      {{"hybrid_context_parallel", "max_seqlen_per_dp_cp_rank"},
       [](S s) { return !is_hybrid(s) && s.parallel->max_seqlen_per_dp_cp_rank > 0; },
       [](S) {
         return Parts{"--max-seqlen-per-dp-cp-rank",
                      "has an effect only with --hybrid-context-parallel",
                      "add --hybrid-context-parallel, or leave it out"};
       }},
      {{"hybrid_context_parallel", "dataloader_inter_document_masking"},
       [](S s) { return is_hybrid(s) && !s.data->dataloader_inter_document_masking; },
       [](S) {
         return Parts{kFlag, "divides the documents of samples, which attention must not cross",
                      "add --dataloader-inter-document-masking"};
       }},
      {{"hybrid_context_parallel", "calculate_per_token_loss"},
       [](S s) { return is_hybrid(s) && !s.training->calculate_per_token_loss; },
       [](S) {
         return Parts{kFlag,
                      "forms microbatches of different lengths, so the loss must be the mean over "
                      "all tokens of a step",
                      "add --calculate-per-token-loss"};
       }},
      {{"hybrid_context_parallel", "micro_batch_size"},
       [](S s) { return is_hybrid(s) && s.training->micro_batch_size > 1; },
       [](S s) {
         return Parts{
             "--micro-batch-size",
             text_of(s.training->micro_batch_size) +
                 " with --hybrid-context-parallel: --max-seqlen-per-dp-cp-rank is the size of a "
                 "microbatch, in tokens",
             "use --micro-batch-size 1"};
       }},
      {{"hybrid_context_parallel", "cp_comm_type"},
       [](S s) { return is_hybrid(s) && divides_heads(s); },
       [](S) {
         return Parts{"--cp-comm-type",
                      "divides heads, but with --hybrid-context-parallel the number of ranks "
                      "differs from document to document",
                      "use p2p or all_gather"};
       }},
      {{"hybrid_context_parallel", "dataloader_type"},
       [](S s) { return is_hybrid(s) && s.data->dataloader_type == "cyclic"; },
       [](S) {
         return Parts{"--dataloader-type cyclic",
                      "orders samples by data-parallel rank, but --hybrid-context-parallel divides "
                      "the samples of a step over all ranks",
                      "use --dataloader-type single"};
       }},
  };
  return rules;
}

}  // namespace megatron
