// Chooses the checkpoint that a run starts from. Rank 0 searches and broadcasts its choice, so that
// no rank lists a folder while another rank already writes to it. The others make sure that what
// they find there is the same checkpoint. With --moe-use-upcycling, the dense checkpoint of --load
// becomes a release checkpoint with experts in --save, from which the run starts.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "megatron/checkpoint/upcycle.h"
#include "megatron/training/run/startup_warnings.h"

namespace megatron {

struct CheckpointConfig;
struct CheckpointSource;
class ModelFamilies;
struct Rank;
struct Settings;

/// Returns the checkpoint that --load names, or a non-persistent checkpoint that is newer. Without
/// any checkpoint, prints Megatron's warning and returns nullopt; with --finetune or
/// --exit-on-missing-checkpoint, when a rank's folder holds another checkpoint than rank 0's, or
/// when the flag `needed_by` cannot do without a checkpoint, throws UserError on every rank.
/// UserError when the folder holds something else. Collective over rank.world; returns after all
/// ranks have opened the chosen checkpoint.
std::optional<CheckpointSource> choose_checkpoint(const CheckpointConfig& config, const Rank& rank,
                                                  StartupWarnings& warnings, std::ostream& out,
                                                  const std::string& needed_by = {});

/// Throws a UserError if `source` is not the checkpoint that rank 0 chose, whose identity is
/// `chosen`: the folder lies on another disk on each host.
void require_same_checkpoint(const CheckpointSource& source, std::uint64_t chosen);

/// Returns what --moe-use-upcycling requests of a program with these model families; nothing
/// without it. Throws UserError when --save holds a checkpoint already. Collective over the world.
std::optional<UpcycleRequest> upcycle_request(const Settings& settings, const Rank& rank,
                                              const ModelFamilies& families,
                                              StartupWarnings& warnings, std::ostream& out);

/// Writes the dense model `source` with experts to --save and returns that checkpoint. Collective
/// over the world.
CheckpointSource upcycle(const CheckpointSource& source, const UpcycleRequest& request,
                         const std::string& save);

}  // namespace megatron
