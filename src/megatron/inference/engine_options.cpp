#include "megatron/inference/engine_options.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/memory_limits.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/field_table.h"
#include "megatron/config/field_values.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/ops/matmul.h"

namespace megatron {
namespace {

constexpr double kGibibyte = 1 << 30;
/// The rest of the free memory is for activations, and for what other programs do meanwhile.
constexpr double kShareOfFreeMemory = 0.9;
constexpr const char* kShareText = "90 % of free memory";

std::string flag_of(const char* name) { return engine_table().set().find_name(name)->flag(); }

std::string buffer_size_flag() { return flag_of("inference_dynamic_batching_buffer_size_gb"); }

/// Returns the bytes that a cache may have: what the user gave, but not more than is free.
double cache_bytes(const EngineSettings& settings, const CacheBudget& budget) {
  return std::min(budget.free_bytes, settings.buffer_size_gb.value_or(INFINITY) * kGibibyte);
}

/// Returns how many blocks a cache may have.
std::int64_t num_blocks(const EngineSettings& settings, const CacheBudget& budget) {
  if (budget.block_bytes == 0) return kMaxBlocks;
  return static_cast<std::int64_t>(
      std::min<double>(kMaxBlocks, std::floor(cache_bytes(settings, budget) / budget.block_bytes)));
}

/// Returns how many blocks of paused texts fit on every rank.
std::int64_t num_swap_blocks(const EngineSettings& settings, std::span<const CacheBudget> budgets) {
  const double bytes = settings.paused_buffer_size_gb.value_or(0) * kGibibyte;
  double most = kMaxBlocks;
  for (const CacheBudget& budget : budgets)
    most = std::min(most, bytes / std::max(1.0, budget.block_bytes));
  return static_cast<std::int64_t>(most);
}

[[noreturn]] void throw_no_room(const EngineSettings& settings, const CacheBudget& budget) {
  const std::string block = "a block of " + std::to_string(kBlockPositions) + " tokens needs " +
                            byte_size_text(budget.block_bytes);
  if (budget.free_bytes >= budget.block_bytes)
    throw UserError({buffer_size_flag() + " " + number_text(*settings.buffer_size_gb), block,
                     std::string("raise it, or leave it out for ") + kShareText});
  std::string fix = "free some memory, run fewer ranks on this machine, ";
  if (settings.paused_buffer_size_gb)  // free_cache_bytes() takes it from the memory of a CPU
    fix += "lower " + flag_of("inference_dynamic_batching_paused_buffer_size_gb") + " (on a CPU), ";
  throw UserError({"the KV cache",
                   block + ", but only " + byte_size_text(budget.free_bytes) + " is available (" +
                       kShareText + ")",
                   fix + "or divide the model among more ranks (--tensor-model-parallel-size, "
                         "--pipeline-model-parallel-size)"});
}

/// Takes the memory of states from the budgets, which limits the number of texts that run at the
/// same time, and that of the snapshots of the prefix cache. Returns what the user should know.
std::string reserve_states(const EngineSettings& settings, std::vector<CacheBudget>& budgets,
                           SchedulerOptions& options) {
  constexpr std::int64_t kFewStates = 6;
  double most = 0;  // of a rank
  std::int64_t num_states = std::numeric_limits<std::int32_t>::max();
  for (const CacheBudget& budget : budgets) {
    if (budget.state_bytes == 0) continue;
    most = std::max(most, budget.state_bytes);
    const double count = std::floor(cache_bytes(settings, budget) / 2 / budget.state_bytes);
    num_states = std::min(num_states, static_cast<std::int64_t>(std::min(count, 1e9)));
  }
  if (most == 0) return "";
  const std::int64_t wanted = options.max_running;
  const bool lacks_room = options.prefix_cache && num_states < kFewStates;
  if (lacks_room) options.prefix_cache = false;
  options.max_snapshots = options.prefix_cache ? std::min(wanted, num_states / 3) : 0;
  options.max_running =
      std::clamp<std::int64_t>(num_states - options.max_snapshots, 1, options.max_running);
  for (CacheBudget& budget : budgets)
    budget.free_bytes =
        std::max(0.0, cache_bytes(settings, budget) -
                          static_cast<double>(options.max_running + options.max_snapshots) *
                              budget.state_bytes);
  std::string note = "the states of a text take " + byte_size_text(most);
  if (options.max_running < wanted)
    note += ", so that " + std::to_string(options.max_running) + " texts run at the same time";
  if (options.max_snapshots > 0)
    note += "; " + std::to_string(options.max_snapshots) +
            " states are kept for prompts that begin alike";
  if (lacks_room) note += "; prompts that begin alike are each computed";
  return note;
}

/// Returns what the user should know of a cache that is smaller than asked for, or than the longest
/// text.
std::string size_note(const EngineSettings& settings, const TransformerConfig& model,
                      const CacheBudget& budget, std::int64_t num_tokens) {
  const std::int64_t longest = settings.max_seq_length.value_or(model.max_position_embeddings);
  const bool is_less =
      cache_bytes(settings, budget) < settings.buffer_size_gb.value_or(0) * kGibibyte;
  if (budget.block_bytes == 0 || (!is_less && (settings.buffer_size_gb || num_tokens >= longest)))
    return "";
  return (is_less ? buffer_size_flag() + " " + number_text(*settings.buffer_size_gb) + ": " : "") +
         "the KV cache has " + byte_size_text(budget.free_bytes) + ", " + kShareText +
         ", which is room for " + std::to_string(num_tokens) + " tokens";
}

}  // namespace

KvCacheType kv_cache_type(const EngineSettings& settings) {
  if (settings.kv_cache_dtype == "int8") return KvCacheType::int8;
  return settings.kv_cache_dtype == "fp8_e4m3" ? KvCacheType::fp8_e4m3 : KvCacheType::same;
}

double cache_block_bytes(const ModelRunner& model, KvCacheType type,
                         const SpeculationOptions& speculation) {
  const c10::InferenceMode no_gradients;
  const bool has_depths = speculation.config.num_speculative_tokens > 0 &&
                          speculation.config.method() == SpeculativeMethod::mtp;
  const std::vector<std::int64_t> token{0};
  Microbatch microbatch = microbatch_of({token});
  const auto block_bytes = [&](KvCacheType own_type, std::int64_t depth, at::Tensor* rows) {
    SequenceCache cache(std::make_shared<CacheMemory>(CacheMemoryOptions{.type = own_type}));
    cache.blocks = {0};
    const Caches caches{&cache};
    next_logits(model, {.microbatch = microbatch,
                        .caches = &caches,
                        .encoder = model.model().has_encoder() ? &microbatch : nullptr,
                        .depth = depth,
                        .rows = rows});
    double bytes = 0;
    for (const auto& [path, blocks] : cache.memory().layers())
      bytes += static_cast<double>(blocks.size().bytes);
    return bytes;
  };
  at::Tensor rows;
  double bytes = block_bytes(type, 0, has_depths ? &rows : nullptr);
  if (speculation.draft_model != nullptr) bytes += cache_block_bytes(*speculation.draft_model);
  if (!has_depths) return bytes;
  microbatch.tensors["previous_rows"] = rows;
  // Depths are alike, and each has a cache.
  return bytes + static_cast<double>(model.config().mtp_num_layers) *
                     block_bytes(KvCacheType::same, 1, &rows);
}

double cache_state_bytes(const ModelRunner& model) {
  if (!model.model().keeps_states()) return 0;
  const c10::InferenceMode no_gradients;
  const std::vector<std::int64_t> token{0};
  SequenceCache cache(std::make_shared<CacheMemory>());
  cache.blocks = {0};
  const Caches caches{&cache};
  next_logits(model, {.microbatch = microbatch_of({token}), .caches = &caches});
  return cache.state_bytes();
}

double free_cache_bytes(const EngineSettings& settings, c10::Device device,
                        std::int64_t ranks_on_host) {
  if (!device.is_cpu())
    return kShareOfFreeMemory *
           static_cast<double>(
               c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  const MemoryLimits limits = host_memory_limits();
  const double free = attainable_memory(limits, ranks_on_host) - limits.resident;
  return std::max(
      0.0, kShareOfFreeMemory * free - settings.paused_buffer_size_gb.value_or(0) * kGibibyte);
}

ChosenOptions engine_options(const EngineSettings& settings, const TransformerConfig& model,
                             std::span<const CacheBudget> all_budgets) {
  ChosenOptions chosen;
  SchedulerOptions& options = chosen.options.scheduler;
  options.max_step_tokens = settings.max_tokens.value_or(
      std::max(options.max_step_tokens, settings.max_requests.value_or(0)));
  options.max_running =
      settings.max_requests.value_or(std::min(options.max_running, options.max_step_tokens));
  options.max_sequence_length =
      settings.max_seq_length.value_or(std::numeric_limits<std::int64_t>::max());
  options.chunked_prefill = settings.chunked_prefill;
  options.prefix_cache = settings.prefix_caching;
  std::vector<CacheBudget> budgets(all_budgets.begin(), all_budgets.end());
  chosen.note = reserve_states(settings, budgets, options);
  const CacheBudget& least = *std::ranges::min_element(
      budgets, {}, [&](const CacheBudget& budget) { return num_blocks(settings, budget); });
  options.num_blocks = num_blocks(settings, least);
  options.num_swap_blocks = num_swap_blocks(settings, budgets);
  chosen.options.kv_cache_type = kv_cache_type(settings);
  if (options.num_blocks < 1) throw_no_room(settings, least);
  const std::int64_t num_tokens = options.num_blocks * options.block_size;
  if (chosen.note.empty())
    chosen.note = size_note(settings, model, least, num_tokens);
  else if (least.block_bytes > 0)
    chosen.note += "; the KV cache has room for " + std::to_string(num_tokens) + " tokens";
  return chosen;
}

void check_batch_invariance(const EngineSettings& settings, const TransformerConfig& model,
                            c10::Device device, c10::ScalarType type) {
  if (!settings.batch_invariant_mode) return;
  const std::string flag = flag_of("batch_invariant_mode");
  if (!device.is_cpu() || !uses_own_gemm(type))
    throw UserError({flag,
                     "the library that multiplies " + dtype_name(type) +
                         " matrices on this device rounds by the number of rows",
                     "use --device cpu, with --bf16 or --fp32"});
  if (has_recurrent_layers(model))
    throw UserError({flag,
                     "with recurrent layers the bits of a text depend on how its prompt is "
                     "divided into passes",
                     "leave it out"});
  if (model.cache_mla_latents)
    throw UserError({flag,
                     "with --cache-mla-latents the bits of a text depend on how its prompt is "
                     "divided into passes",
                     "leave one of them out"});
}

}  // namespace megatron
