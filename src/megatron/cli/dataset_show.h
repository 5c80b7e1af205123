// Implements `megatron dataset show`, which prints samples in training order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/data_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/builder.h"

namespace megatron {

struct DatasetCommandOptions {
  std::vector<std::string> operands;
  std::optional<std::int64_t> seq_length;
  std::int64_t seed = 1234;
  std::string num_samples = "none,none,none";
  std::string split_name = "train";
  std::int64_t global_batch_size = 0;                         ///< of --blend-schedule
  std::int64_t micro_batch_size = 1, data_parallel_size = 1;  ///< of --dataloader-type cyclic
  std::int64_t start = 0, count = 10, vocab_size = 50257;
  std::string input, output_prefix;
  bool multimodal = false, decode = false;
  SampleKind dataset_type = SampleKind::gpt;
  bool bert_no_binary_head = false;
  TokenizerConfig tokenizer;
  DataConfig data;
};

/// Returns whether --document-packing-strategy packs whole documents.
bool packs_documents(const DatasetCommandOptions& options);

/// Prints the samples that the options select, one JSON line each.
int show_samples(const DatasetCommandOptions& options);

}  // namespace megatron
