// The tables of a run's settings. They declare Megatron-LM's flags and defaults for the members of
// settings.h.
#pragma once

#include <string_view>

#include "megatron/config/field_table.h"

namespace megatron {

struct CheckpointConfig;
struct DataConfig;
struct FaultToleranceConfig;
struct LoggerConfig;
struct MemoryConfig;
struct LinearAttentionConfig;
struct MambaConfig;
struct MoeConfig;
struct OptimizerConfig;
struct ParallelConfig;
struct RerunConfig;
struct SchedulerConfig;
struct Settings;
struct TokenizerConfig;
struct TrainingConfig;
struct TransformerConfig;

/// Notes that several tables give.
extern const ConditionalNote kNothingIsSaved, kOnlyEvaluates;

/// Consequences of a resume with another value, which several tables name.
inline constexpr std::string_view kOtherSamples =
    "the consumed samples were different ones: some samples repeat, some are never seen";
inline constexpr std::string_view kOtherSums = "the same samples, summed in another order";

const FieldTable<TransformerConfig>& transformer_table();
const FieldTable<MoeConfig>& moe_table();
const FieldTable<MambaConfig>& mamba_table();
const FieldTable<LinearAttentionConfig>& linear_attention_table();
const FieldTable<ParallelConfig>& parallel_table();
const FieldTable<TrainingConfig>& training_table();
const FieldTable<RerunConfig>& rerun_table();
const FieldTable<OptimizerConfig>& optimizer_table();
const FieldTable<SchedulerConfig>& scheduler_table();
const FieldTable<DataConfig>& data_table();
const FieldTable<TokenizerConfig>& tokenizer_table();
/// The flag of commands that read conversations.
const FieldTable<TokenizerConfig>& chat_template_table();
const FieldTable<MemoryConfig>& memory_table();
const FieldTable<CheckpointConfig>& checkpoint_table();
const FieldTable<FaultToleranceConfig>& fault_tolerance_table();
const FieldTable<LoggerConfig>& logger_table();

/// Adds the fields of mixed precision to the tables of training and optimizer.
void add_precision_fields(FieldTable<TrainingConfig>& table);
void add_precision_fields(FieldTable<OptimizerConfig>& table);

/// Returns the table of all settings of a run.
const FieldTable<Settings>& settings_table();

}  // namespace megatron
