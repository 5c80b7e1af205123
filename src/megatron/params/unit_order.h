// Predicts the unit of a model whose weights are read next, so that they can be gathered ahead.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace megatron {

/// Remembers in which order the last passes (a training step, an evaluation) read the units. The
/// prediction is a function of the reads alone, so it is the same on all ranks that run the same
/// passes.
class UnitOrder {
 public:
  /// Begins a pass.
  void begin();
  /// Records that the pass reads `unit`, another unit than before.
  void read(std::size_t unit);
  /// Returns what followed in the last pass that began with the same reads, or what followed
  /// `later` reads after that; nullopt at its end and when there is none.
  std::optional<std::size_t> next(std::size_t later = 0) const;

 private:
  static constexpr std::size_t kMaxPasses = 4;

  std::vector<std::vector<std::size_t>> passes_;  ///< the latest first
  std::vector<bool> matches_;                     ///< one per pass: it began with current_
  std::vector<std::size_t> current_;
};

}  // namespace megatron
