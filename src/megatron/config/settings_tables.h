// The tables of a run's settings: Megatron-LM's flags, with their defaults, on the members of
// settings.h.
#pragma once

#include "megatron/config/field_table.h"
#include "megatron/config/settings.h"

namespace megatron {

const FieldTable<TransformerConfig>& transformer_table();
const FieldTable<ParallelConfig>& parallel_table();
const FieldTable<TrainingConfig>& training_table();
const FieldTable<RerunConfig>& rerun_table();
const FieldTable<OptimizerConfig>& optimizer_table();
const FieldTable<SchedulerConfig>& scheduler_table();
const FieldTable<DataConfig>& data_table();
const FieldTable<TokenizerConfig>& tokenizer_table();
const FieldTable<CheckpointConfig>& checkpoint_table();
const FieldTable<LoggerConfig>& logger_table();

/// The fields that 16-bit training needs, as part of the tables of training and optimizer.
void add_precision_fields(FieldTable<TrainingConfig>& table);
void add_precision_fields(FieldTable<OptimizerConfig>& table);

/// All of the above.
const FieldTable<Settings>& settings_table();

}  // namespace megatron
