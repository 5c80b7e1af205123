// Connects the ranks of a command. Commands that run on several ranks use it before their own work.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "megatron/config/field.h"
#include "megatron/parallel/comm_slots.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/failure/hang_watch.h"
#include "megatron/parallel/world.h"
#include "megatron/training/run/rank_context.h"

namespace megatron {

struct Rank;
struct ParallelConfig;

/// Returns every setting of `object` as a flag. All ranks must have been started with the same
/// flags.
SettingsText flags_of(const FieldSet& fields, const void* object);

struct DistributedOptions {
  SettingsText flags;  ///< equal on all ranks
  /// The rank writes its calls and stacks here on SIGUSR2 and when the run hangs
  /// (parallel/failure/hang_watch.h); without a folder it only prints its stack.
  std::filesystem::path hang_reports = {};
  /// The groups of an earlier start in this process; null: there are none.
  std::shared_ptr<CommSlots> slots = {};
};

/// The connection of this rank to the others. During its lifetime, the failure of another rank ends
/// every wait of this one.
class DistributedContext {
 public:
  /// Joins the other ranks, opens this rank's device and creates its communicators according to
  /// `parallel`. Collective over the world. Throws like World::join(), open_device() and
  /// World::make_communicators().
  DistributedContext(World& world, const ParallelConfig& parallel,
                     const DistributedOptions& options);
  DistributedContext(const DistributedContext&) = delete;
  DistributedContext& operator=(const DistributedContext&) = delete;
  ~DistributedContext();

  /// Returns what a run needs of this object, which must outlive it.
  RankContext in_world();
  /// Returns this rank's position in the mesh of `parallel`, for work without dropout and
  /// gradients. Collective over the world.
  Rank place(const ParallelConfig& parallel) const;

 private:
  World& world_;
  OpenedDevice device_;
  std::unique_ptr<Communicators> communicators_;  ///< null in a world of one rank
  std::optional<HangWatch> own_watch_;            ///< of a world of one rank
};

}  // namespace megatron
