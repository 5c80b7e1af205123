// Finds the flags by which a run needs less memory, with what they save and cost. Each candidate is
// the run's own settings with other values, for which the memory of a rank is predicted again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/models/model_family.h"

namespace megatron {

struct Settings;

struct MemoryRemedy {
  std::string flags;             ///< "--recompute-granularity full --recompute-method uniform …"
  std::int64_t world_size = 1;   ///< ranks that the run then needs
  double predicted_bytes = 0;    ///< tensors of the rank that needs most
  double saved_bytes = 0;        ///< predicted, of that rank
  double more_time = 0;          ///< share of the step's time, from the FLOPs computed twice
  bool changes_numbers = false;  ///< rounds other values, so that losses differ
  bool waits_for_disk = false;   ///< copies state from and to an offload folder in each update
  bool fits = false;             ///< predicted_bytes are available
};

/// Returns the remedies that the flags of this program offer, cheapest first: those that fit, among
/// these those that leave the number of ranks and the numbers as they are, then by time, then by
/// what they save. Of those that do not fit, the ones that save most come first, and after them
/// those that need more ranks. `settings` are those of a run on `world_size` ranks, resolved and
/// valid. `available_bytes` is what tensors of one rank may hold.
std::vector<MemoryRemedy> memory_remedies(const Settings& settings, const ModelFamily& family,
                                          std::int64_t world_size, double available_bytes);

/// Returns "--use-distributed-optimizer: 1.20 GiB less (3.10 GiB of tensors), no more FLOPs".
std::string describe(const MemoryRemedy& remedy, std::int64_t world_size);

/// Returns the description of the first remedies, one per line, each after a line break.
std::string remedies_text(const std::vector<MemoryRemedy>& remedies, std::int64_t world_size);

}  // namespace megatron
