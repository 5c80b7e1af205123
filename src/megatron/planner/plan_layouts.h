// Searches the ways to divide a run over a number of ranks: which sizes of tensor, context,
// pipeline and expert parallelism fit the model, how much memory a rank needs, how much it sends
// inside and between hosts, and how long it waits for other stages.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "megatron/config/mesh_sizes.h"
#include "megatron/models/model_family.h"
#include "megatron/planner/communication_volume.h"
#include "megatron/planner/rank_memory.h"

namespace megatron {

struct Settings;

/// One way to divide a run over the ranks.
struct LayoutCandidate {
  MeshSizes sizes;
  std::int64_t data_parallel = 1, expert_data_parallel = 1;
  bool sequence_parallel = false;
  std::int64_t num_microbatches = 1;
  RankMemory memory;                  ///< of the pipeline rank that needs most
  CommunicationVolume communication;  ///< bytes that this rank sends per step
  /// Idle part of a step in 1F1B or interleaved 1F1B, with stages that take equally long: with p
  /// ranks, v chunks and m microbatches (p − 1) ÷ (v·m + p − 1) (Narayanan et al. 2021, arXiv
  /// 2104.04473, section 2.2).
  double bubble = 0;
  std::string why = {};  ///< its place among all: of rank_layouts()
};

struct LayoutRequest {
  std::int64_t world_size = 1, gpus_per_host = kGpusPerHost;
  /// Names of the fields of parallelism whose values in the settings are kept. The search varies
  /// the others: tensor_model_parallel_size, context_parallel_size, pipeline_model_parallel_size
  /// and, for models with experts, expert_model_parallel_size and expert_tensor_parallel_size.
  std::set<std::string, std::less<>> fixed = {};
};

/// Returns `settings` with the sizes of one layout, resolved.
Settings settings_with(const Settings& settings, const MeshSizes& sizes, std::int64_t world_size);

/// Returns the problems of settings that settings_with() returned: sizes that do not divide the
/// world, the batch, or the dimensions of the model.
Problems check_layout(const Settings& settings, std::int64_t world_size);

/// Returns the sizes that a search considers, valid or not: divisors of the world size (pp), those
/// that divide the attention heads (tp) or the experts (ep) too, the divisors of tp (etp), and
/// those of half the sequence (cp). The ranks of tp × cp stay within a host, as far as one is free.
std::vector<MeshSizes> considered_sizes(const Settings& settings, const LayoutRequest& request);

/// Returns the ranks of the first pipeline, without communicators. `settings` must pass
/// check_layout().
std::vector<Rank> pipeline_ranks(const Settings& settings, std::int64_t world_size);

/// Returns the number of microbatches of the first step.
std::int64_t first_num_microbatches(const Settings& settings, std::int64_t world_size);

/// Bytes that a rank writes; replicas share evenly what they hold alike.
struct CheckpointShare {
  double weights = 0;
  double optimizer = 0;  ///< its states, and float32 copies of weights
};

/// Returns the share of each rank of a pipeline. A small weight that all ranks of tensor
/// parallelism hold counts on each of them, and states are as large as their memory is in
/// proportion to that of weights, in which paddings differ a little. `settings` must pass
/// check_layout().
std::vector<CheckpointShare> checkpoint_shares(const Settings& settings, const ModelFamily& family,
                                               std::int64_t world_size);

/// Returns the memory and communication of one layout. `settings` must pass check_layout().
LayoutCandidate evaluate_layout(const Settings& settings, LayerTraces& traces,
                                std::int64_t world_size, std::int64_t gpus_per_host = kGpusPerHost);

/// Returns the valid layouts, least memory first. UserError with the problems of the given sizes if
/// there is none. `settings` must be valid on one rank but for the sizes.
std::vector<LayoutCandidate> search_layouts(const Settings& settings, const ModelFamily& family,
                                            const LayoutRequest& request);

/// Sorts layouts as one would choose them, and says why. First come those that need at most
/// `memory_limit` bytes, without cp if sequences of `seq_length` tokens are short for it (32,768 or
/// fewer), then those that send least between hosts, have the smallest bubble, and send least
/// inside hosts. Amounts between hosts count as equal up to 4, 16, … times the least: gradients and
/// weights are sent while layers compute, but a bubble is lost. Layouts that do not fit keep their
/// order. Returns the number of those that fit.
std::size_t rank_layouts(std::vector<LayoutCandidate>& layouts, double memory_limit,
                         std::int64_t seq_length);

}  // namespace megatron
