// Computes the settings that depend on others, with Megatron-LM's defaults.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

struct DataConfig;
struct SchedulerConfig;
struct Settings;
struct TransformerConfig;

/// Sets ffn_hidden_size, kv_channels, num_query_groups, the type of rotary scaling and, if there
/// are experts, moe.ffn_hidden_size, and calls resolve_layers(). Values that are given stay. Values
/// that depend on a size that is still 0 are not set.
void resolve(TransformerConfig& model);

/// Calls resolve(*settings.model) and set_comm_types(), and sets, unless given:
/// - global_batch_size: micro_batch_size × data_parallel_size, or the last size of the step
/// schedule
/// - max_position_embeddings: seq_length
/// - train_iters: computed from train_samples
/// - split: "969, 30, 1" with data; without data it uses mock data and "1,1,1"
/// - model.vocab_size: --padded-vocab-size, else the tokenizer's --vocab-size
/// Also disables sequence parallelism if there is no tensor parallelism.
void resolve(Settings& settings, std::int64_t data_parallel_size = 1);

/// Returns whether the schedule of the learning rate has lengths in samples.
bool uses_sample_schedule(const SchedulerConfig& scheduler);

/// Returns whether data are named; without, a run takes mock data.
bool has_paths(const DataConfig& data);

/// Parses a --split such as "969, 30, 1" or "98/2/0": one to three numbers that are not all 0.
/// Missing numbers are 0. The result is not normalized. Returns nullopt if the text is invalid.
std::optional<std::array<double, 3>> split_weights(const std::string& split);

}  // namespace megatron
