// One rank of `generate` or `score`: its part of the model, and who speaks.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "megatron/cli/engine/distributed_context.h"
#include "megatron/config/inference_options.h"
#include "megatron/inference/load_model.h"

namespace megatron {

class InferenceRank {
 public:
  /// Meets the other ranks and loads this one's part of the model. Collective over the world.
  InferenceRank(World& world, const ModelOptions& options, const SettingsText& flags);

  const LoadedModel& loaded() const { return *loaded_; }
  LanguageModel& model() const { return loaded_->model(); }

  /// Whether this rank reads what all work on, and prints what comes of it.
  bool is_main_rank() const { return rank_.index == 0; }
  /// Whether this rank speaks for its replica of the model.
  bool is_replica_leader() const { return rank_.model.rank == 0; }
  std::int64_t replica() const { return rank_.dp.rank; }
  std::int64_t num_replicas() const { return rank_.dp.size; }

  /// What rank 0 gives, on every rank. Collective over the world.
  std::vector<std::string> broadcast(const std::vector<std::string>& texts) const;
  /// Every replica's text, in their order. Collective over the replicas.
  std::vector<std::string> gather(const std::string& text) const;

 private:
  DistributedContext context_;
  Rank rank_;
  std::optional<LoadedModel> loaded_;
};

}  // namespace megatron
