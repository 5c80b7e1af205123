// The timeouts of a run's sections, and their file ft_state.json, which nvidia-resiliency-ext reads
// and writes too.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "megatron/config/section_timeouts.h"

namespace megatron {

struct FaultToleranceConfig;

/// A value for each RunSection, and behind them one for what lies between the sections.
template <class T>
using PerSection = std::array<T, kRunSectionNames.size() + 1>;
inline constexpr std::size_t kOutOfSection = kRunSectionNames.size();

/// What the length of a step depends on.
struct StepLoad {
  std::int64_t world_size = 0;        ///< 0: unknown, as in a file of nvidia-resiliency-ext
  std::int64_t num_microbatches = 0;  ///< of each rank and step
  bool operator==(const StepLoad&) const = default;
};

struct SectionLimits {
  PerSection<std::optional<double>> seconds = {};  ///< nullopt: no limit
  PerSection<bool> is_calculated = {};             ///< from measured times, not given
  StepLoad load = {};                              ///< with which they were calculated

  /// Takes the limits of the flags.
  static SectionLimits from(const FaultToleranceConfig& config);
  /// Sets the limits of the sections for which `longest_s` has a value to `factor` times it. A
  /// limit that was calculated before becomes the mean of the old and the new one.
  void update(const PerSection<std::optional<double>>& longest_s, double factor);
  bool has_any() const;
  /// Returns, for example, "setup 600 s, step 30 s (calculated), checkpointing none, out of section
  /// none".
  std::string text() const;
};

/// Returns the file of calculated limits in the folder of --save.
std::filesystem::path section_limits_path(const std::filesystem::path& save);
/// Replaces the limits that the file holds. Does nothing if there is no such file. Throws a
/// UserError if it is not such a file.
void read_calculated_limits(const std::filesystem::path& path, SectionLimits& limits);
void write_calculated_limits(const std::filesystem::path& path, const SectionLimits& limits);

}  // namespace megatron
