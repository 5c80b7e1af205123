// Rules on validation: its batches and its sets.
#include <algorithm>

#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using namespace rules;

std::int64_t micro_size(S s) {
  return s.training->eval_micro_batch_size.value_or(s.training->micro_batch_size);
}
std::int64_t global_size(S s) {
  const TrainingConfig& t = *s.training;
  return t.eval_global_batch_size.value_or(t.global_batch_size == 0 ? t.micro_batch_size
                                                                    : t.global_batch_size);
}

}  // namespace

const Rules& evaluation_rules() {
  static const Rules rules = {
      rule(
          [](S s) {
            const bool given =
                s.training->eval_global_batch_size || s.training->eval_micro_batch_size;
            return given && s.training->step_batch_size_schedule.empty() && micro_size(s) > 0 &&
                   global_size(s) % micro_size(s) != 0;
          },
          [](S s) {
            const std::int64_t micro = micro_size(s), global = global_size(s);
            return Message{
                &Training::eval_global_batch_size,
                {global, " is no multiple of the micro batch size of evaluation, ", micro},
                {"use ", &Training::eval_global_batch_size, " ",
                 std::max<std::int64_t>(1, global / micro) * micro, ", or another ",
                 &Training::eval_micro_batch_size},
                {&Training::global_batch_size, &Training::micro_batch_size}};
          }),
      needs(&Training::validation_set_names, &Training::multiple_validation_sets),
  };
  return rules;
}

}  // namespace megatron
