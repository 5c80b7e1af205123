// All settings of a run, with Megatron-LM's names and defaults. Each part is a struct in a header
// of its own, which only the sources that read it include: a new setting recompiles those. The
// *_table.cpp files declare the flag, the help and the range of each.
#pragma once

#include "megatron/base/indirect.h"

namespace megatron {

struct CheckpointConfig;
struct DataConfig;
struct FaultToleranceConfig;
struct LegacyFlags;
struct LoggerConfig;
struct MemoryConfig;
struct OptimizerConfig;
struct ParallelConfig;
struct RerunConfig;
struct SchedulerConfig;
struct TokenizerConfig;
struct TrainingConfig;
struct TransformerConfig;

/// All settings of a `pretrain` run: settings.training->seq_length is one of them.
struct Settings {
  Settings();
  Settings(const Settings&);
  Settings(Settings&&) noexcept;
  Settings& operator=(const Settings&);
  Settings& operator=(Settings&&) noexcept;
  ~Settings();

  Indirect<LegacyFlags> legacy;
  Indirect<TransformerConfig> model;
  Indirect<ParallelConfig> parallel;
  Indirect<TrainingConfig> training;
  Indirect<RerunConfig> rerun;
  Indirect<OptimizerConfig> optimizer;
  Indirect<SchedulerConfig> scheduler;
  Indirect<DataConfig> data;
  Indirect<TokenizerConfig> tokenizer;
  Indirect<MemoryConfig> memory;
  Indirect<CheckpointConfig> checkpoint;
  Indirect<FaultToleranceConfig> fault_tolerance;
  Indirect<LoggerConfig> logger;
};

}  // namespace megatron
