// Several datasets mixed by weight, as megatron-core's BlendedDataset.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/datasets/dataset.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/npy.h"

namespace megatron {

/// Which dataset each position of the blend draws from, and which of its samples.
struct BlendIndex {
  NpyArray dataset_index;         ///< int16
  NpyArray dataset_sample_index;  ///< int64
};

/// At each position the dataset that lags its weight the most; the first of equals. `weights` sum
/// to 1.
BlendIndex build_blend_index(const std::vector<double>& weights, std::int64_t size);

/// Every sample of every dataset once, interleaved in proportion to `sizes`.
BlendIndex build_exhaustive_blend_index(const std::vector<std::int64_t>& sizes);

struct BlendOptions {
  std::vector<double> weights = {};       ///< empty: the datasets' sizes
  std::optional<std::int64_t> size = {};  ///< nothing (only without weights): every sample once
  std::string cache_folder = {};          ///< empty: not cached
  double surplus = 0.005;                 ///< named in the error when a dataset runs out
};

class BlendedDataset : public Dataset {
 public:
  BlendedDataset(std::vector<std::shared_ptr<const GptDataset>> datasets,
                 const BlendOptions& options, std::vector<std::string>& warnings);

  std::int64_t size() const override { return index_.dataset_index.size(); }
  Sample sample(std::int64_t index) const override;
  std::vector<std::int64_t> text(std::int64_t index) const override;
  std::string describe(std::int64_t index) const override;
  std::vector<CorpusShare> shares(std::int64_t samples) const override;
  const BlendIndex& index() const { return index_; }

 private:
  /// The dataset and its sample at a position of the blend.
  std::pair<const GptDataset&, std::int64_t> locate(std::int64_t index) const;
  void check_dataset_sizes(const BlendIndex& index, double surplus) const;

  std::vector<std::shared_ptr<const GptDataset>> datasets_;
  std::vector<double> weights_;  ///< sum to 1
  BlendIndex index_;
};

}  // namespace megatron
