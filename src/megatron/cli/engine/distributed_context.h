// A process of a command that has met the others: what commands that run as many ranks do before
// their own work.
#pragma once

#include <memory>

#include "megatron/config/field.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/world.h"
#include "megatron/training/loop/rank_context.h"

namespace megatron {

/// Every setting of `object` as its flag: what all ranks must have been started with.
SettingsText flags_of(const FieldSet& fields, const void* object);

/// While it lives, another rank's failure ends what this one waits for.
class DistributedContext {
 public:
  /// Meets the other ranks, opens this one's device and makes its communicators, as `parallel`
  /// says. Collective over the world; errors as World::join, open_device and
  /// World::make_communicators.
  DistributedContext(World& world, const ParallelConfig& parallel, const SettingsText& flags);
  DistributedContext(const DistributedContext&) = delete;
  DistributedContext& operator=(const DistributedContext&) = delete;
  ~DistributedContext();

  RankContext in_world() const;
  /// This rank's place in the mesh of `parallel`, for work without dropout and gradients.
  /// Collective over the world.
  Rank place(const ParallelConfig& parallel) const;

 private:
  World& world_;
  OpenedDevice device_;
  std::unique_ptr<Communicators> communicators_;
};

}  // namespace megatron
