#include "megatron/datasets/blended_dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/datasets/index_cache.h"
#include "megatron/datasets/unique_description.h"

namespace megatron {
namespace {

/// Returns how many samples a dataset is behind its weight at a position.
double lag(double weight, std::int64_t position, std::int64_t drawn) {
  return weight * std::max(static_cast<double>(position), 1.0) - static_cast<double>(drawn);
}

/// Selects `size` samples, each from the dataset that is furthest behind (the first of equals).
/// Dataset i gives at most limits[i] samples.
BlendIndex draw_most_lagging(const std::vector<double>& weights,
                             const std::vector<std::int64_t>& limits, std::int64_t size) {
  std::vector<std::int16_t> datasets(static_cast<std::size_t>(size));
  std::vector<std::int64_t> samples(static_cast<std::size_t>(size)), drawn(weights.size(), 0);
  for (std::int64_t position = 0; position < size; ++position) {
    std::size_t chosen = 0;
    double most = std::numeric_limits<double>::lowest();
    for (std::size_t dataset = 0; dataset < weights.size(); ++dataset) {
      if (drawn[dataset] == limits[dataset]) continue;
      const double candidate = lag(weights[dataset], position, drawn[dataset]);
      if (candidate > most) {
        most = candidate;
        chosen = dataset;
      }
    }
    datasets[static_cast<std::size_t>(position)] = static_cast<std::int16_t>(chosen);
    samples[static_cast<std::size_t>(position)] = drawn[chosen]++;
  }
  return {NpyArray(std::move(datasets)), NpyArray(std::move(samples))};
}

}  // namespace

BlendIndex build_blend_index(const std::vector<double>& weights, std::int64_t size) {
  return draw_most_lagging(
      weights, std::vector<std::int64_t>(weights.size(), std::numeric_limits<std::int64_t>::max()),
      size);
}

BlendIndex build_exhaustive_blend_index(const std::vector<std::int64_t>& sizes) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::vector<double> weights;
  for (const std::int64_t size : sizes)
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  return draw_most_lagging(weights, sizes, total);
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const SourceDataset>> datasets,
                               const BlendOptions& options, std::vector<std::string>& warnings)
    : datasets_(std::move(datasets)) {
  MEGATRON_CHECK(
      !datasets_.empty() && (options.weights.empty() || options.weights.size() == datasets_.size()),
      "a blend needs one weight per dataset");
  if (datasets_.size() >= 32767)
    throw UserError({"a blend holds at most 32766 datasets", std::to_string(datasets_.size()),
                     "merge some of them"});

  std::vector<std::int64_t> sizes;
  for (const auto& dataset : datasets_) sizes.push_back(dataset->size());
  for (std::size_t i = 0; i < sizes.size() && options.weights.empty(); ++i) {
    if (sizes[i] == 0)
      throw UserError(
          {"dataset " + datasets_[i]->part().path.value_or("") + ": its " +
               std::string(split_name(datasets_[i]->part().split)) +
               " split is shorter than one sample",
           "", "leave it out of the blend, enlarge the split, or give the datasets weights"});
  }
  const bool exhaustive = !options.size;
  std::vector<double> weights = options.weights;
  if (weights.empty()) weights.assign(sizes.begin(), sizes.end());
  if (!exhaustive) weights = normalize(std::move(weights));

  weights_ = normalize(weights);

  OrderedJson identifiers;
  identifiers["class"] = "BlendedDataset";
  identifiers["datasets"] = OrderedJson::array();
  for (const auto& dataset : datasets_) identifiers["datasets"].push_back(dataset->identifiers());
  const std::string split(split_name(datasets_[0]->part().split));
  identifiers["split"] = split;
  identifiers["weights"] = exhaustive ? OrderedJson(sizes) : OrderedJson(weights);
  identifiers["size"] = options.size ? OrderedJson(*options.size) : OrderedJson(nullptr);

  IndexCacheEntry entry{.folder = options.cache_folder,
                        .class_name = "BlendedDataset",
                        .split = split,
                        .description = python_json_dumps(identifiers),
                        .array_names = {"dataset_index", "dataset_sample_index"}};
  for (const auto& dataset : datasets_) entry.sources.files.push_back(dataset->index_file());
  entry.sources.checksum = [&sizes] { return checksum(std::as_bytes(std::span(sizes))); };
  const std::int64_t size =
      options.size.value_or(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  const auto build = [&] {
    BlendIndex index =
        exhaustive ? build_exhaustive_blend_index(sizes) : build_blend_index(weights, size);
    check_dataset_sizes(index, options.surplus);
    return IndexArrays{index.dataset_index, index.dataset_sample_index};
  };
  const auto accept = [&](const IndexArrays& arrays) {
    return arrays[0].shape() == std::vector<std::int64_t>{size} &&
           arrays[1].shape() == arrays[0].shape();
  };
  IndexArrays arrays = load_or_build(entry, build, accept, warnings);
  index_ = {arrays[0], arrays[1]};
}

void BlendedDataset::check_dataset_sizes(const BlendIndex& index, double surplus) const {
  std::vector<std::int64_t> drawn(datasets_.size(), 0);
  for (std::int64_t i = 0; i < index.dataset_index.size(); ++i)
    ++drawn[static_cast<std::size_t>(index.dataset_index.at(i))];
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (drawn[i] <= datasets_[i]->size()) continue;
    throw UserError({"the " + std::string(split_name(datasets_[i]->part().split)) +
                         " blend draws " + std::to_string(drawn[i]) + " samples from " +
                         datasets_[i]->part().path.value_or("") + ", which has " +
                         std::to_string(datasets_[i]->size()),
                     "",
                     "raise --mid-level-dataset-surplus, now " + python_float_repr(surplus) +
                         ", two- or ten-fold"});
  }
}

std::pair<const SourceDataset&, std::int64_t> BlendedDataset::locate(std::int64_t index) const {
  const std::int64_t dataset = index_.dataset_index.at(index),
                     sample = index_.dataset_sample_index.at(index);
  if (dataset < 0 || dataset >= static_cast<std::int64_t>(datasets_.size()) || sample < 0 ||
      sample >= datasets_[static_cast<std::size_t>(dataset)]->size())
    throw UserError({"the cached sample order of the blend does not match its datasets",
                     "sample " + std::to_string(index), "delete the folder of --data-cache-path"});
  return {*datasets_[static_cast<std::size_t>(dataset)], sample};
}

Sample BlendedDataset::sample(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.sample(sample);
}

std::vector<std::int64_t> BlendedDataset::text(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.text(sample);
}

std::vector<std::int64_t> BlendedDataset::drawn_samples(std::int64_t samples) const {
  std::vector<std::int64_t> drawn(datasets_.size(), 0);
  for (std::int64_t i = 0; i < samples; ++i)
    ++drawn.at(static_cast<std::size_t>(index_.dataset_index.at(i)));
  return drawn;
}

std::vector<SampleField> BlendedDataset::fields(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.fields(sample);
}

std::vector<CorpusShare> BlendedDataset::shares(std::int64_t samples) const {
  std::vector<CorpusShare> all;
  const std::vector<std::int64_t> drawn = drawn_samples(std::min(samples, size()));
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    CorpusShare share = datasets_[i]->shares(drawn[i]).front();
    share.weight = weights_[i];
    all.push_back(std::move(share));
  }
  return all;
}

std::string BlendedDataset::describe(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.describe(sample) + " (sample " + std::to_string(index) + " of the blend)";
}

}  // namespace megatron
