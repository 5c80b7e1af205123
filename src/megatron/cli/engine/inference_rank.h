// One rank of `generate` or `score`, with its shard of the model.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "megatron/cli/engine/distributed_context.h"
#include "megatron/config/inference_options.h"
#include "megatron/inference/load_model.h"

namespace megatron {

/// Loads a rank's shard of the model and exchanges texts with the other ranks.
class InferenceRank {
 public:
  /// Joins the other ranks and loads this rank's shard of the model. Collective over the world.
  InferenceRank(World& world, const ModelOptions& options, const SettingsText& flags);

  const LoadedModel& loaded() const { return *loaded_; }
  LanguageModel& model() const { return loaded_->model(); }

  /// Returns whether this rank reads the input of all ranks and prints their output.
  bool is_main_rank() const { return rank_.index == 0; }
  /// Returns whether this rank provides the results of its replica of the model.
  bool is_replica_leader() const { return rank_.model.rank == 0; }
  std::int64_t replica() const { return rank_.dp.rank; }
  std::int64_t num_replicas() const { return rank_.dp.size; }

  /// Returns the texts of rank 0 on every rank. Collective over the world.
  std::vector<std::string> broadcast(const std::vector<std::string>& texts) const;
  /// Returns the text of every replica, in the order of the replicas. Collective over the replicas.
  std::vector<std::string> gather(const std::string& text) const;

 private:
  DistributedContext context_;
  Rank rank_;
  std::optional<LoadedModel> loaded_;
};

}  // namespace megatron
