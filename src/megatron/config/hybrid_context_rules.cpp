// Rules on hybrid context parallelism: documents are divided over ranks by their lengths.
#include <algorithm>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using namespace rules;

/// Returns whether layers divide heads, which needs a number of ranks that is known beforehand.
bool divides_heads(S s) {
  return std::ranges::any_of(s.parallel->cp_comm_type, [](CpCommType type) {
    return type == CpCommType::a2a || type == CpCommType::a2a_p2p;
  });
}

}  // namespace

const Rules& hybrid_context_rules() {
  static const Rules rules = {
      tunes({&Parallel::max_seqlen_per_dp_cp_rank}, &Parallel::hybrid_context_parallel),
      refuse({&Parallel::hybrid_context_parallel, without(&Parallel::max_seqlen_per_dp_cp_rank)},
             "needs the number of tokens that a rank can hold",
             {"add ", &Parallel::max_seqlen_per_dp_cp_rank}),
      refuse(
          {&Parallel::hybrid_context_parallel, without(&Data::dataloader_inter_document_masking)},
          "divides the documents of samples, which attention must not cross",
          {"add ", &Data::dataloader_inter_document_masking}),
      refuse({&Parallel::hybrid_context_parallel, without(&Training::calculate_per_token_loss)},
             "forms microbatches of different lengths, so the loss must be the mean over all "
             "tokens of a step",
             {"add ", &Training::calculate_per_token_loss}),
      rule(
          [](S s) {
            return s.parallel->hybrid_context_parallel && s.training->micro_batch_size > 1;
          },
          {&Training::micro_batch_size,
           {value(&Training::micro_batch_size), " with ", &Parallel::hybrid_context_parallel, ": ",
            &Parallel::max_seqlen_per_dp_cp_rank, " is the size of a microbatch, in tokens"},
           {"use ", &Training::micro_batch_size, " 1"}}),
      rule([](S s) { return s.parallel->hybrid_context_parallel && divides_heads(s); },
           {&Parallel::cp_comm_type,
            {"divides heads, but with ", &Parallel::hybrid_context_parallel,
             " the number of ranks differs from document to document"},
            "use p2p or all_gather"}),
      refuse({is(&Data::dataloader_type, "cyclic"), &Parallel::hybrid_context_parallel},
             {"orders samples by data-parallel rank, but ", &Parallel::hybrid_context_parallel,
              " divides the samples of a step over all ranks"},
             {"use ", &Data::dataloader_type, " single"}),
  };
  return rules;
}

}  // namespace megatron
