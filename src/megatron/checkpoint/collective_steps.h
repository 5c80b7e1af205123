// Steps that all ranks take together. A step succeeds on all ranks or fails on all ranks with the
// message of the first rank that failed. A folder that cannot be read is a UserError, as a file is.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

class CollectiveSteps {
 public:
  /// `device` is the device of tensors in collectives.
  CollectiveSteps(const Axis& world, c10::Device device) : world_(world), device_(device) {}

  std::int64_t rank() const { return world_.rank; }
  std::int64_t size() const { return world_.size; }
  /// Runs `step` on every rank and returns all results by rank. When it throws on one rank, all
  /// ranks throw: that rank its own exception, the others the same text with the rank's number.
  /// Collective over the world.
  std::vector<std::string> run_on_all_ranks(const std::function<std::string()>& step) const;
  /// The same, but only rank 0 gets the results. For results that grow with the checkpoint.
  std::vector<std::string> gather_from_all_ranks(const std::function<std::string()>& step) const;
  /// Runs `step` on rank 0 and returns its result on all ranks. A UserError is thrown on all ranks
  /// without the rank's number, because flags and shared folders are common to all ranks.
  /// Collective over the world.
  std::string run_on_rank_0(const std::function<std::string()>& step) const;

 private:
  enum class RankPrefix { always, internal_errors_only };
  std::vector<std::string> run(const std::function<std::string()>& step, RankPrefix prefix) const;
  /// Returns the result in the message of a rank, or throws the failure that it reports.
  static std::string result_of(const std::string& rank, const std::string& message,
                               RankPrefix prefix);

  const Axis& world_;
  c10::Device device_;
};

}  // namespace megatron
