// Chooses the options of an engine: from its settings, and from the memory that is free.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>

#include "megatron/config/engine_settings.h"
#include "megatron/inference/engine.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

struct TransformerConfig;

/// What bounds the KV cache of a rank.
struct CacheBudget {
  double block_bytes = 0;  ///< of a block in all layers of the rank; 0: they keep no blocks
  double free_bytes = 0;   ///< what the cache may take
  double state_bytes = 0;  ///< of the states of a text in all layers of the rank
};

/// Returns the type that --kv-cache-dtype names.
KvCacheType kv_cache_type(const EngineSettings& settings);

/// Returns the bytes of a block of the KV cache in all layers of this rank, and in those of the
/// drafter. A pass over one token tells. Collective over the ranks of the model.
double cache_block_bytes(const ModelRunner& model, KvCacheType type = KvCacheType::same,
                         const SpeculationOptions& speculation = {});

/// Returns the bytes of the states that the layers of this rank keep of a text. Collective over the
/// ranks of the model.
double cache_state_bytes(const ModelRunner& model);

/// Returns the memory that the cache of a rank may take, of what is free now: of the device, or of
/// a host that has `ranks_on_host` ranks, without the memory of paused texts.
double free_cache_bytes(const EngineSettings& settings, c10::Device device,
                        std::int64_t ranks_on_host);

struct ChosenOptions {
  EngineOptions options;
  std::string note;  ///< what the user should know of the cache's size; "": nothing
};

/// Returns the options of an engine whose cache fits on every rank that makes the same calls;
/// `budgets` are those ranks'. States take up to half of the cache, and limit how many texts run.
/// The prefix cache has a third of them, and is off where there is room for few. UserError, with
/// numbers, when no block fits.
ChosenOptions engine_options(const EngineSettings& settings, const TransformerConfig& model,
                             std::span<const CacheBudget> budgets);

/// Throws UserError with --batch-invariant-mode if the bits of a text may depend on what is
/// computed beside it. Weights have type `type`.
void check_batch_invariance(const EngineSettings& settings, const TransformerConfig& model,
                            c10::Device device, c10::ScalarType type);

}  // namespace megatron
