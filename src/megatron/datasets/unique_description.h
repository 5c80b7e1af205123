// Writes the JSON text that identifies a dataset's indices with the same bytes as Python's
// json.dumps(indent=4), so that its MD5 equals megatron-core's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/split.h"

namespace megatron {

/// Returns json.dumps(value, indent=4): Python's float format, ASCII only, keys in order.
std::string python_json_dumps(const JsonText& value);

/// Returns repr(value) of a Python float.
std::string python_float_repr(double value);

/// Identifies a tokenizer in the description by Megatron's class path, the model's path and the
/// constructor's arguments.
struct TokenizerIdentity {
  std::string class_path = "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText";
  std::optional<std::string> path;
  std::vector<std::pair<std::string, std::string>> arguments;
};

JsonText to_json(const TokenizerIdentity& tokenizer);

/// Identifies the samples of one split of a source and their order.
struct SampleDescription {
  std::string class_name;  ///< of megatron-core's dataset
  std::optional<std::string> path;
  std::optional<std::int64_t> num_samples;
  Split split = Split::train;
  std::int64_t seed = 0, sequence_length = 0;
  std::string split_text;
  std::optional<SplitMatrix> split_matrix;
  TokenizerIdentity tokenizer;
};

JsonText to_json(const SampleDescription& samples);

/// Returns megatron-core's split_matrix; null when each split has its own data.
JsonText to_json(const std::optional<SplitMatrix>& matrix);

}  // namespace megatron
