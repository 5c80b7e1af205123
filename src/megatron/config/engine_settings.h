// The settings of the inference engine, which commands that run a model share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

template <class Options>
class FieldTable;

/// What engine_table() says. An engine's options follow from it and from the memory that is free
/// (inference/engine_options.h).
struct EngineSettings {
  std::optional<std::int64_t> max_requests = {}, max_tokens = {};  ///< of a pass
  std::optional<std::int64_t> max_seq_length = {};
  std::optional<double> buffer_size_gb = {}, paused_buffer_size_gb = {};
  std::string kv_cache_dtype = "auto";
  bool chunked_prefill = true, prefix_caching = true;
  bool batch_invariant_mode = false;
};

const FieldTable<EngineSettings>& engine_table();

}  // namespace megatron
