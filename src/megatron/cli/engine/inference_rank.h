// One rank of a command that runs a model, with its shard of the model.
#pragma once

#include <iosfwd>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "megatron/cli/engine/distributed_context.h"
#include "megatron/config/inference_options.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/load_model.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/request_server.h"

namespace megatron {

/// Loads a rank's shard of the model and exchanges texts with the other ranks.
class InferenceRank {
 public:
  /// Joins the other ranks and loads this rank's shard of the model. Collective over the world.
  InferenceRank(World& world, const ModelOptions& options, const SettingsText& flags,
                const ModelFamilies& families);

  const ModelRunner& model() const { return loaded_->runner; }

  /// Loads the tokenizer that flags name, or the checkpoint's, and prints its notes.
  LoadedTokenizer load_tokenizer(const TokenizerConfig& flags, const ParseResult& parsed) const;

  /// Returns the options of an engine that runs the model on all ranks alike, and prints a note
  /// where memory bounds its KV cache. Loads the draft model, and fails if a drafter cannot serve
  /// the model. Collective over the world.
  EngineOptions engine_options(const ModelOptions& options,
                               const SpeculativeConfig& speculative = {});
  /// Returns the most tokens of a prompt with its text: those that the model was made for, unless
  /// flags say otherwise, if the KV cache has room for them.
  std::int64_t max_model_len(const ModelOptions& options, const EngineOptions& engine) const;
  /// Says how speculation went, if engines had a drafter.
  void note_speculation() const;

  /// Returns whether this rank reads the input of all ranks and prints their output.
  bool is_main_rank() const { return rank_.index == 0; }
  /// Returns whether this rank provides the results of its replica of the model.
  bool is_replica_leader() const {
    return rank_.replica.rank == 0 && rank_.dp.rank % dp_ranks_per_replica() == 0;
  }
  std::int64_t replica() const { return rank_.dp.rank / dp_ranks_per_replica(); }
  std::int64_t num_replicas() const { return rank_.dp.size / dp_ranks_per_replica(); }
  /// Return the ranks of an AsyncEngine, and of a ReplicaSet of their leaders.
  ServingRanks serving_ranks() const;
  ServingRanks replica_leaders() const;

  /// Prints a note, once, that a text is longer than the context that the model was trained for.
  void note_length(std::int64_t length, const std::string& text);

  /// Returns the texts of rank 0 on every rank. Collective over the world.
  std::vector<std::string> broadcast(const std::vector<std::string>& texts) const;
  /// Returns the texts of the replicas, in their order, and "" from ranks that do not lead one.
  /// Collective over the replicas.
  std::vector<std::string> gather(const std::string& text) const;
  /// Returns, on rank 0, the sums of the numbers of the replicas. Collective over the replicas.
  std::vector<double> sum(std::vector<double> numbers) const;

 private:
  /// Ranks of dp among which experts are divided process the same texts, in the same passes.
  std::int64_t dp_ranks_per_replica() const {
    return std::lcm(rank_.etp_ep.size, rank_.tp_cp.size) / rank_.tp_cp.size;
  }

  /// Loads another model, split as the first one.
  LoadedModel load_draft(const std::string& folder, const ModelOptions& options) const;

  DistributedContext context_;
  Rank rank_;
  const ModelFamilies& families_;
  std::optional<LoadedModel> loaded_, draft_;
  std::optional<SpeculationStats> speculation_stats_;  ///< with a drafter
  bool has_noted_length_ = false;
};

}  // namespace megatron
