#include "megatron/config/settings_tables.h"

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {

constexpr ConditionalNote kNothingIsSaved{
    [](const Settings& s) { return s.checkpoint->save.empty(); },
    "without effect: there is no --save"};
constexpr ConditionalNote kOnlyEvaluates{[](const Settings& s) { return s.training->skip_train; },
                                         "without effect: --skip-train writes nothing"};

const FieldTable<Settings>& settings_table() {
  return field_table<Settings>([](auto& t) {
    t.include(&Settings::model, transformer_table());
    for (const Field& field : legacy_table().set().fields) t.add_field(field);
    t.include(&Settings::training, training_table());
    t.include(&Settings::rerun, rerun_table());
    t.include(&Settings::optimizer, optimizer_table());
    t.include(&Settings::scheduler, scheduler_table());
    t.include(&Settings::data, data_table());
    t.include(&Settings::tokenizer, tokenizer_table());
    t.include(&Settings::tokenizer, chat_template_table());
    t.include(&Settings::checkpoint, checkpoint_table());
    t.include(&Settings::fault_tolerance, fault_tolerance_table());
    t.include(&Settings::logger, logger_table());
    t.include(&Settings::parallel, parallel_table());
    t.include(&Settings::memory, memory_table());
  });
}

}  // namespace megatron
