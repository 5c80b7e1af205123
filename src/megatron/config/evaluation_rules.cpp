// Rules on validation: its batches and its sets.
#include <algorithm>

#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;

std::int64_t micro_size(S s) {
  return s.training->eval_micro_batch_size.value_or(s.training->micro_batch_size);
}
std::int64_t global_size(S s) {
  const TrainingConfig& t = *s.training;
  return t.eval_global_batch_size.value_or(t.global_batch_size == 0 ? t.micro_batch_size
                                                                    : t.global_batch_size);
}

}  // namespace

const std::vector<Rule>& evaluation_rules() {
  static const std::vector<Rule> rules = {
      {{"eval_global_batch_size", "eval_micro_batch_size", "global_batch_size", "micro_batch_size"},
       [](S s) {
         const bool given = s.training->eval_global_batch_size || s.training->eval_micro_batch_size;
         return given && s.training->step_batch_size_schedule.empty() && micro_size(s) > 0 &&
                global_size(s) % micro_size(s) != 0;
       },
       [](S s) {
         return UserError::Parts{
             "--eval-global-batch-size",
             text_of(global_size(s)) + " is no multiple of the micro batch size of evaluation, " +
                 text_of(micro_size(s)),
             "use --eval-global-batch-size " +
                 text_of(std::max<std::int64_t>(1, global_size(s) / micro_size(s)) *
                         micro_size(s)) +
                 ", or another --eval-micro-batch-size"};
       }},
      {{"validation_set_names", "multiple_validation_sets"},
       [](S s) {
         return !s.training->validation_set_names.empty() && !s.training->multiple_validation_sets;
       },
       [](S) {
         return UserError::Parts{"--validation-set-names", "needs --multiple-validation-sets",
                                 "add --multiple-validation-sets"};
       }},
  };
  return rules;
}

}  // namespace megatron
