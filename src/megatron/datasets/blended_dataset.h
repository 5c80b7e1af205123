// Mixes several datasets by weight, as megatron-core's BlendedDataset does.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/blend_phases.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/index_cache.h"
#include "megatron/datasets/npy.h"
#include "megatron/datasets/source_dataset.h"

namespace megatron {

/// For each position of the blend, the dataset and the sample in that dataset.
struct BlendIndex {
  NpyArray dataset_index;         ///< int16
  NpyArray dataset_sample_index;  ///< int64
};

/// Selects at each position the dataset that is furthest behind its weight; the first of equals.
/// `weights` sum to 1.
BlendIndex build_blend_index(const std::vector<double>& weights, std::int64_t size);

/// Selects every sample of every dataset once, interleaved in proportion to `sizes`.
BlendIndex build_exhaustive_blend_index(const std::vector<std::int64_t>& sizes);

/// Mixes by build_blend_index() within each phase. A dataset continues in a phase where the one
/// before left it: its samples are numbered in the order in which they are drawn, without a gap.
BlendIndex build_phased_blend_index(const std::vector<BlendPhase>& phases);

struct BlendOptions {
  std::vector<double> weights = {};       ///< empty: weighted by the datasets' sizes
  std::optional<std::int64_t> size = {};  ///< nullopt, only without weights: every sample once
  std::vector<BlendPhase> phases = {};    ///< if not empty, in place of weights and size
  std::string cache_folder = {};          ///< empty: the index is not cached
  double surplus = 0.005;                 ///< printed in the error when a dataset is too short
};

class BlendedDataset : public Dataset {
 public:
  BlendedDataset(std::vector<std::shared_ptr<const SourceDataset>> datasets,
                 const BlendOptions& options, std::vector<std::string>& warnings);

  std::int64_t size() const override { return index_.dataset_index.size(); }
  const SampleFields& fields() const override { return datasets_.front()->fields(); }
  Sample sample(std::int64_t index) const override;
  std::vector<std::int64_t> text(std::int64_t index) const override;
  std::string describe(std::int64_t index) const override;
  std::vector<CorpusShare> shares(std::int64_t samples) const override;
  const BlendIndex& index() const { return index_; }

 private:
  /// Returns the dataset, and the sample in it, at position `index` of the blend.
  std::pair<const SourceDataset&, std::int64_t> locate(std::int64_t index) const;
  /// Returns how many of the samples [begin, end) each dataset gives.
  std::vector<std::int64_t> drawn_samples(std::int64_t begin, std::int64_t end) const;
  void add_phases(std::vector<CorpusShare>& shares, std::int64_t samples) const;
  void check_no_empty_dataset() const;
  IndexCacheEntry cache_entry(const JsonText& order, const std::string& folder) const;
  void check_dataset_sizes(const BlendIndex& index, double surplus) const;

  std::vector<std::shared_ptr<const SourceDataset>> datasets_;
  std::vector<double> weights_;  ///< sum to 1; with phases, over all samples
  std::vector<BlendPhase> phases_;
  BlendIndex index_;
};

}  // namespace megatron
