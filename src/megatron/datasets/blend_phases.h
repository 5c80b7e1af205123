// The mixtures of a run's training sources by --blend-schedule, and how many samples each source
// gives. Both are functions of the settings alone, so a run resumes exactly on any layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/config/data_phase.h"

namespace megatron {

struct DataConfig;
struct TrainingConfig;

/// One mixture of the sources of a blend.
struct BlendPhase {
  DataPhase span = {};               ///< the iterations and the number of samples it holds for
  std::vector<double> weights = {};  ///< of each source, sum 1; a source of weight 0 is not drawn
};

/// Mixtures that follow each other. A source continues where it was in the mixture before.
struct BlendSchedule {
  std::vector<std::string> sources = {};  ///< path prefixes
  std::vector<BlendPhase> phases = {};    ///< empty: one mixture for the whole run
  std::int64_t num_samples() const;
  /// Returns the weight of each source over all samples.
  std::vector<double> mean_weights() const;
};

/// Returns the schedule of resolved settings; without phases if there is no --blend-schedule.
/// Throws a UserError if a source of the schedule is not among those of the training data, if a
/// source is never drawn, or if no mixture is given for the first iteration.
BlendSchedule train_blend_schedule(const TrainingConfig& training, const DataConfig& data);

/// Returns megatron-core's number of samples to build of each source, so that a mixture of `phases`
/// never lacks any: the sum of ceil(samples × weight), and `surplus` of it more.
std::vector<std::int64_t> samples_to_build(const std::vector<BlendPhase>& phases, double surplus);

/// Returns `mixture 2 of 3, iterations 1001 to 2000: 0.2 a_text_document, 0.8 c_text_document`.
std::string blend_phase_line(const BlendSchedule& schedule, std::size_t phase);

}  // namespace megatron
