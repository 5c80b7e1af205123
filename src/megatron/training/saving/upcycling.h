// The start of a run with --moe-use-upcycling: the dense checkpoint of --load becomes a release
// checkpoint with experts in --save, from which the run starts.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "megatron/checkpoint/upcycle.h"
#include "megatron/training/run/startup_warnings.h"

namespace megatron {

struct CheckpointSource;
struct Rank;
struct Settings;

/// Returns what --moe-use-upcycling requests of a program with these model families; nothing
/// without it. Throws UserError when --save
/// holds a checkpoint already. Collective over the world.
std::optional<UpcycleRequest> upcycle_request(const Settings& settings, const Rank& rank,
                                              const ModelFamilies& families,
                                              StartupWarnings& warnings, std::ostream& out);

/// Writes the dense model `source` with experts to --save and returns that checkpoint. Collective
/// over the world.
CheckpointSource upcycle(const CheckpointSource& source, const UpcycleRequest& request,
                         const std::string& save);

}  // namespace megatron
