// Steps that several ranks take together: each succeeds on all of them or fails on all of them,
// with the message of the first that failed.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

class CollectiveSteps {
 public:
  /// Tensors that travel lie on `device`.
  CollectiveSteps(const Axis& world, c10::Device device) : world_(world), device_(device) {}

  std::int64_t rank() const { return world_.rank; }
  std::int64_t size() const { return world_.size; }
  /// Runs `step` on every rank and gives all their texts, by rank. Throws on all ranks when it
  /// throws on one: there what it threw, elsewhere the same text with the rank's number. Collective
  /// over the world.
  std::vector<std::string> run_on_all_ranks(const std::function<std::string()>& step) const;
  /// The same for rank 0 alone; the others get its text, and a user's mistake as it stands, without
  /// the rank: flags and shared folders are those of every rank.
  std::string run_on_rank_0(const std::function<std::string()>& step) const;

 private:
  enum class RankPrefix { always, internal_errors_only };
  std::vector<std::string> run(const std::function<std::string()>& step, RankPrefix prefix) const;

  const Axis& world_;
  c10::Device device_;
};

}  // namespace megatron
